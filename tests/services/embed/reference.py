"""all-MiniLM-L6-v2 once more, in plain numpy and float64: what the served vectors are held against."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float64]


class Reference:
    """The weights, and a forward pass for one text at a time."""

    def __init__(self, weights: Path) -> None:
        self._weights: dict[str, Array] = {
            name: array.astype(np.float64) for name, array in load_file(weights).items()
        }

    def vector(self, ids: list[int]) -> Array:
        """The vector of a text of tokens, of length one."""
        tokens = self._weights["embeddings.word_embeddings.weight"][ids]
        places = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        state = self._norm(tokens + places + kind, "embeddings.LayerNorm")
        for layer in range(6):
            state = self._layer(state, f"encoder.layer.{layer}.")
        mean = state.mean(axis=0)
        vector: Array = mean / np.linalg.norm(mean)
        return vector

    def _layer(self, state: Array, name: str) -> Array:
        heads = [
            self._linear(state, f"{name}attention.self.{part}").reshape(len(state), 12, 32).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        ]
        likeness = heads[0] @ heads[1].transpose(0, 2, 1) / math.sqrt(32)
        shares = np.exp(likeness - likeness.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = (shares @ heads[2]).transpose(1, 0, 2).reshape(len(state), 384)
        attended = self._linear(mixed, name + "attention.output.dense")
        state = self._norm(state + attended, name + "attention.output.LayerNorm")
        wide = self._linear(state, name + "intermediate.dense")
        gelu = wide * 0.5 * (1 + _erf(wide / math.sqrt(2)))
        return self._norm(state + self._linear(gelu, name + "output.dense"), name + "output.LayerNorm")

    def _linear(self, state: Array, name: str) -> Array:
        product: Array = state @ self._weights[name + ".weight"].T + self._weights[name + ".bias"]
        return product

    def _norm(self, state: Array, name: str) -> Array:
        centred = state - state.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        normed: Array = scaled * self._weights[name + ".weight"] + self._weights[name + ".bias"]
        return normed


def _erf(values: Array) -> Array:
    found: Any = np.frompyfunc(math.erf, 1, 1)(values)
    return np.asarray(found, np.float64)
