"""The model as an ONNX graph for ONNX Runtime, built from the published weights.

    word, position and type of each token -> six layers of attention and feed-forward -> mean over the tokens

The weights are passed beside the graph instead of being part of it, so the graph takes a few kilobytes
(docs/decisions/0118).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import StringStringEntryProto, TensorProto, helper

from hearthnet_embed.minilm.files import DIM

Weights = dict[str, NDArray[Any]]
LAYERS: Final = 6
_HEADS: Final = 12
_HEAD: Final = DIM // _HEADS
_EPSILON: Final = 1e-12
_FAR: Final = -1e9
"""Added to the attention scores of padding."""
_OPSET: Final = 20
_IR: Final = 10
_PROJECTIONS: Final = ("query", "key", "value")


def built(weights: Weights) -> tuple[bytes, Weights]:
    """Return the serialized graph and the weights that it names.

    The inputs are `ids` and `mask` (texts by tokens), the output is `vectors` (texts by 384).

    Raises:
        KeyError: a weight is missing.
    """
    graph = _Graph(weights)
    graph.made()
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
        for name in ("ids", "mask")
    ]
    output = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", DIM])
    tensors = [*graph.constants, *(_beside(*one) for one in graph.outside.items())]
    made = helper.make_graph(graph.nodes, "minilm", inputs, [output], tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return model.SerializeToString(), graph.outside


def _beside(name: str, array: NDArray[Any]) -> Any:
    """Return the description of an array that is passed beside the graph."""
    tensor = TensorProto(
        name=name,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        dims=array.shape,
        data_location=TensorProto.EXTERNAL,
    )
    tensor.external_data.append(StringStringEntryProto(key="location", value="weights"))
    return tensor


class _Graph:
    """Nodes in the order of their creation, and the arrays that they name."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outside: Weights = {}

    def made(self) -> None:
        """Add all nodes of the model."""
        self._constants()
        state = self._embeddings()
        for layer in range(LAYERS):
            state = self._layer(state, f"encoder.layer.{layer}.")
        self._mean(state)

    def _constants(self) -> None:
        for name, values in (
            ("first", [0]),
            ("second", [1]),
            ("third", [2]),
            ("inner", [1, 2]),
            ("heads", [0, 0, _HEADS, _HEAD]),
            ("whole", [0, 0, DIM]),
        ):
            self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        for name, value in (("one", 1.0), ("far", _FAR), ("scale", _HEAD**-0.5)):
            self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))

    def _embeddings(self) -> str:
        place = self._weights["embeddings.position_embeddings.weight"]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        self.outside["places"] = place + kind
        words = self._add("Gather", [self._weight("embeddings.word_embeddings.weight"), "ids"], "words")
        length = self._add("Shape", ["ids"], "length", start=1, end=2)
        places = self._add("Slice", ["places", "first", length], "at")
        kept = self._add("Cast", ["mask"], "kept", to=TensorProto.FLOAT)
        padding = self._add("Sub", ["one", self._add("Unsqueeze", [kept, "inner"], "kept4")], "padding")
        self._add("Mul", [padding, "far"], "unseen")
        return self._norm(self._add("Add", [words, places], "embedded"), "embeddings.LayerNorm")

    def _layer(self, state: str, name: str) -> str:
        attended = self._linear(self._attention(state, name), name + "attention.output.dense")
        state = self._norm(
            self._add("Add", [state, attended], name + "attended"), name + "attention.output.LayerNorm"
        )
        wide = self._add("Gelu", [self._linear(state, name + "intermediate.dense")], name + "wide")
        thought = self._linear(wide, name + "output.dense")
        return self._norm(self._add("Add", [state, thought], name + "thought"), name + "output.LayerNorm")

    def _attention(self, state: str, name: str) -> str:
        query, key, value = self._projected(state, name)
        likeness = self._add(
            "Mul", [self._add("MatMul", [query, key], name + "raw"), "scale"], name + "scaled"
        )
        seen = self._add("Add", [likeness, "unseen"], name + "seen")
        share = self._add("Softmax", [seen], name + "share", axis=-1)
        mixed = self._add("MatMul", [share, value], name + "mixed")
        beside = self._add("Transpose", [mixed], name + "beside", perm=[0, 2, 1, 3])
        return self._add("Reshape", [beside, "whole"], name + "joined")

    def _projected(self, state: str, name: str) -> list[str]:
        """Return query, key and value of all heads, computed by one product."""
        places = [name + f"attention.self.{one}" for one in _PROJECTIONS]
        self.outside[name + "qkv"] = np.concatenate([self._weights[one + ".weight"].T for one in places], 1)
        self.outside[name + "qkv.bias"] = np.concatenate([self._weights[one + ".bias"] for one in places])
        product = self._add("MatMul", [state, name + "qkv"], name + "product")
        whole = self._add("Add", [product, name + "qkv.bias"], name + "all")
        parts = [name + one for one in _PROJECTIONS]
        self.nodes.append(helper.make_node("Split", [whole], parts, axis=-1, num_outputs=len(parts)))
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        return [
            self._add("Transpose", [self._add("Reshape", [one, "heads"], one + "4")], one + "t", perm=order)
            for one, order in zip(parts, orders, strict=True)
        ]

    def _mean(self, state: str) -> None:
        kept = self._add("Unsqueeze", ["kept", "third"], "kept3")
        total = self._add(
            "ReduceSum", [self._add("Mul", [state, kept], "said"), "second"], "total", keepdims=0
        )
        count = self._add("ReduceSum", ["kept", "second"], "count", keepdims=1)
        self._add("Div", [total, count], "vectors")

    def _linear(self, state: str, name: str) -> str:
        self.outside[name] = self._weights[name + ".weight"].T
        product = self._add("MatMul", [state, name], name + ".product")
        return self._add("Add", [product, self._weight(name + ".bias")], name + ".out")

    def _norm(self, state: str, name: str) -> str:
        given = [state, self._weight(name + ".weight"), self._weight(name + ".bias")]
        return self._add("LayerNormalization", given, name + ".out", axis=-1, epsilon=_EPSILON)

    def _weight(self, name: str) -> str:
        self.outside[name] = self._weights[name]
        return name

    def _add(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **settings))
        return output
