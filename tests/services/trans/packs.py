"""A language pack as Argos Translate keeps them, of a few kilobytes and with nothing learned."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

_WORDS = ["the house is big", "the water is cold", "my sister drinks water", "we go to the river"] * 20
_WIDTH = 8


def make_pack(folder: Path, source: str = "en", target: str = "es", prefix: str = "") -> Path:
    """Writes a pack that turns a text of one language into the same garbage of the other each time."""
    import ctranslate2
    import numpy
    import sentencepiece

    folder.mkdir(parents=True)
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_WORDS),
        model_writer=written,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "sentencepiece.model").write_bytes(written.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    words = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    spec = ctranslate2.specs.TransformerSpec.from_config((1, 1), 2)
    random = numpy.random.default_rng(1)

    def weights(*shape: int) -> Any:
        return random.standard_normal(shape).astype(numpy.float32)

    def linear(layer: Any, wide: int, out: int) -> None:
        layer.weight, layer.bias = weights(out, wide), numpy.zeros(out, numpy.float32)

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = numpy.ones(_WIDTH, numpy.float32), numpy.zeros(_WIDTH, numpy.float32)

    shared = weights(len(words), _WIDTH)
    spec.encoder.embeddings[0].weight = shared
    spec.decoder.embeddings.weight = shared
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        side.position_encodings.encodings = weights(1024, _WIDTH)
        norm(side.layer_norm)
        for layer in side.layer:
            own = layer.self_attention
            linear(own.linear[0], _WIDTH, 3 * _WIDTH)
            linear(own.linear[1], _WIDTH, _WIDTH)
            norm(own.layer_norm)
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, _WIDTH, 16)
            linear(layer.ffn.linear_1, 16, _WIDTH)
    across = spec.decoder.layer[0].attention
    linear(across.linear[0], _WIDTH, _WIDTH)
    linear(across.linear[1], _WIDTH, 2 * _WIDTH)
    linear(across.linear[2], _WIDTH, _WIDTH)
    norm(across.layer_norm)
    linear(spec.decoder.projection, _WIDTH, len(words))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    (folder / "model").mkdir()
    spec.save(str(folder / "model"))
    about = {"from_code": source, "to_code": target, "package_version": "1.0", "target_prefix": prefix}
    (folder / "metadata.json").write_text(json.dumps(about))
    return folder
