"""The loaded model: texts to tokens, tokens to vectors. Blocks; not for the event loop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from hearthnet import HearthNetError
from hearthnet_embed.minilm import graph
from hearthnet_embed.minilm.files import MAX_TOKENS, Files

_MOST_CORES: Final = 2


class Tokens(msgspec.Struct, frozen=True):
    """The token ids of one text, and whether the text was cut."""

    ids: Sequence[int]
    truncated: bool


class Model:
    """The loaded model; `tokens` and `vectors` may run in two threads, but each in one only."""

    def __init__(self, files: Files, threads: int) -> None:
        """Load the model, which takes about a second.

        `threads` 0 means the number of cores, at most 2.

        Raises:
            HearthNetError: `not_implemented` if the libraries cannot use the files.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            self._tokenizer = Tokenizer.from_file(str(files.tokenizer))
            described, outside = graph.built(load_file(files.weights))
            self._held = _in_memory(outside)
            self._session = onnxruntime.InferenceSession(
                described, _options(self._held, threads), providers=["CPUExecutionProvider"]
            )
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise HearthNetError(
                "not_implemented", f"the built-in embedding model cannot be loaded: {str(error)[:200]}"
            ) from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the token ids of each text, in their order."""
        encoded = self._tokenizer.encode_batch(list(texts))
        return [Tokens(one.ids, bool(one.overflowing)) for one in encoded]

    def vectors(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return a vector for each text of token ids; padding does not change the result."""
        size = max(map(len, batch))
        ids = np.zeros((len(batch), size), np.int64)
        mask = np.zeros((len(batch), size), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        (found,) = self._session.run(["vectors"], {"ids": ids, "mask": mask})
        made: NDArray[np.float32] = found
        return made


class _Held(msgspec.Struct, frozen=True):
    """Objects that the session reads but does not keep alive."""

    names: list[str]
    arrays: list[Any]
    values: list[Any]


def _in_memory(outside: dict[str, Any]) -> _Held:
    arrays = [np.ascontiguousarray(array) for array in outside.values()]
    return _Held(list(outside), arrays, [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays])


def _options(held: _Held, threads: int) -> Any:
    """Return the session's options.

    One thread runs per core. Threads sleep between batches, so that other processes can use the cores.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or min(os.cpu_count() or 1, _MOST_CORES)
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    options.add_external_initializers(held.names, held.values)
    return options
