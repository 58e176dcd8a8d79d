"""Which model answers, what it may be asked at once, and the shape of the answer."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

from hearthnet.errors import HearthNetError
from hearthnet_embed.backend import Backend, Embedded

MOST_TEXTS: Final = 256
_NUMBER_BYTES: Final = 12
"""A number of a reply in JSON, its comma included; rounded to `_DIGITS` it has no more."""
_DIGITS: Final = 7
_SPARE_BYTES: Final = 16_384


def most_texts(dim: int, max_payload: int) -> int:
    """How many vectors of `dim` numbers one message of the server holds."""
    room = max(0, max_payload - _SPARE_BYTES)
    return max(1, min(MOST_TEXTS, room // (dim * _NUMBER_BYTES)))


def named(backends: Sequence[Backend], model: str | None, away: dict[str, str]) -> Backend:
    """The first one, or the one of that name or alias; `partition` where it is away now, `not_found` with the
    nearest names where there is none.
    """
    for backend in backends:
        if model is None or model in (backend.profile.model, *backend.profile.aliases):
            return backend
    if model in away:
        raise HearthNetError("partition", f"{away[model]}; it is offered again once it answers")
    known = [name for one in backends for name in (one.profile.model, *one.profile.aliases)]
    near = difflib.get_close_matches(model or "", known, n=3, cutoff=0.4) or known
    asked = "no embedding model" if model is None else f"no embedding model {model!r}"
    message = f"{asked} here; there is {', '.join(near) or 'none'}"
    raise HearthNetError("not_found", message, details={"path": "/params/model", "nearest": near})


def check_count(texts: Sequence[str], most: int) -> None:
    """`bad_request` where the reply would be larger than the server carries."""
    if len(texts) > most:
        raise HearthNetError(
            "bad_request",
            f"at most {most} texts at once with vectors of this size; ask several times",
            details={"path": "/input/texts", "limit": most},
        )


def output(embedded: Embedded, normalize: bool) -> dict[str, Any]:
    """The vectors as they are sent; blocks for as long as there are many. `internal_error` where the model
    made no numbers.
    """
    import numpy as np

    vectors = np.asarray(embedded.vectors, np.float64)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise HearthNetError("internal_error", "the model made vectors that are none; ask another model")
    if normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths == 0, 1, lengths)
    return {"embeddings": vectors.round(_DIGITS).tolist(), "dim": vectors.shape[1]}
