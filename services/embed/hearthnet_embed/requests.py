"""Requests of `embed.text`: their form, the choice of the model, their limits, their output.

See: contracts/embed.text@1.0.json.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_embed.backend import Embedded, EmbeddingBackend


class EmbedParams(msgspec.Struct, frozen=True):
    """The model's name or alias; None selects the first one."""

    model: str | None = None


class EmbedInput(msgspec.Struct, frozen=True):
    """The texts, and whether their vectors are scaled to length one."""

    texts: list[str]
    normalize: bool = True


MOST_TEXTS: Final = 256
_NUMBER_BYTES: Final = 12
"""Longest number of a reply in JSON with its comma, after rounding to `_DIGITS`."""
_DIGITS: Final = 7
_SPARE_BYTES: Final = 16_384


def most_texts(dim: int, max_payload: int) -> int:
    """Return the number of vectors of `dim` numbers that one message can hold."""
    room = max(0, max_payload - _SPARE_BYTES)
    return max(1, min(MOST_TEXTS, room // (dim * _NUMBER_BYTES)))


def named(backends: Sequence[EmbeddingBackend], model: str | None, away: dict[str, str]) -> EmbeddingBackend:
    """Return the backend with the name or alias `model`, or the first one if None.

    `away` maps the name of each model whose server does not answer to the reason.

    Raises:
        HearthNetError: `partition` if the model's server does not answer; `not_found`, with the nearest
            names, if there is no such model.
    """
    for backend in backends:
        if model is None or model in (backend.profile.model, *backend.profile.aliases):
            return backend
    if model in away:
        raise HearthNetError(
            "partition",
            f"{away[model]}; it is offered again once it answers",
            details={"rule": "backend_gone"},
        )
    known = [name for one in backends for name in (one.profile.model, *one.profile.aliases)]
    near = difflib.get_close_matches(model or "", known, n=3, cutoff=0.4) or known
    missing = "no embedding model" if model is None else f"no embedding model {model!r}"
    message = f"{missing} here; there is {', '.join(near) or 'none'}"
    raise HearthNetError("not_found", message, details={"path": "/params/model", "nearest": near})


def check_count(texts: Sequence[str], most: int) -> None:
    """Raise if the reply to `texts` would be larger than a message of the server.

    Raises:
        HearthNetError: `bad_request` for more than `most` texts.
    """
    if len(texts) > most:
        raise HearthNetError(
            "bad_request",
            f"at most {most} texts at once with vectors of this size; ask several times",
            details={"path": "/input/texts", "limit": most},
        )


def output(embedded: Embedded, normalize: bool) -> dict[str, Any]:
    """Return the vectors as JSON values, rounded and, if requested, of length one.

    Blocks for a time that grows with the number of vectors.

    Raises:
        HearthNetError: `internal_error` if the model returned something other than finite numbers.
    """
    import numpy as np

    vectors = np.asarray(embedded.vectors, np.float64)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise HearthNetError("internal_error", "the model made vectors that are none; ask another model")
    if normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths == 0, 1, lengths)
    return {"embeddings": vectors.round(_DIGITS).tolist(), "dim": vectors.shape[1]}
