"""What a token or a standing grant says of arguments.

See: docs/protocol/tokens.md#scope.
"""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.constraints import Constraints

BODY = {"params": {"corpus": "system", "k": 1}, "input": {"query": "Kerzen", "deep": True, "corpus": "x"}}


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    ("constraints", "broken"),
    [
        ({}, None),
        ({"corpus": ["system"]}, None),
        ({"corpus": ["personal", "system"], "input.query": ["Kerzen"]}, None),
        ({"k": [1.0]}, None),
        ({"input.deep": [True]}, None),
        ({"corpus": ["personal"]}, "corpus"),
        ({"corpus": []}, "corpus"),
        ({"corpus": ["personal"], "k": [1]}, "corpus"),
        ({"k": [1], "corpus": ["personal"]}, "corpus"),
        ({"k": [True]}, "k"),
        ({"input.deep": [1]}, "input.deep"),
        ({"k": ["1"]}, "k"),
        ({"model": ["smollm2"]}, "model"),
        ({"model": [None]}, "model"),
        ({"query": ["Kerzen"]}, "query"),
        ({"input.query": ["Brot"]}, "input.query"),
        ({"input.model": ["x"]}, "input.model"),
        ({"input.corpus": ["system"]}, "input.corpus"),
        ({"input.": ["x"]}, "input."),
        ({"": ["x"]}, ""),
        ({"params.corpus": ["system"]}, "params.corpus"),
    ],
    ids=str,
)
def test_a_constrained_value_is_there_and_is_one_of_those_allowed(
    constraints: dict[str, list[Any]], broken: str | None
) -> None:
    assert Constraints(constraints).violated(BODY) == broken


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    "body", [{}, {"params": None}, {"params": ["corpus"]}, {"params": "corpus", "input": 1}]
)
@pytest.mark.parametrize("key", ["corpus", "input.corpus"])
def test_a_constraint_on_a_body_of_another_shape_is_not_met(body: dict[str, Any], key: str) -> None:
    assert Constraints({key: ["x"]}).violated(body) == key


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize("value", [["a", {"b": 1}], {"b": [1.0], "a": None}, 1e16, "é", None, []], ids=ascii)
def test_values_are_compared_as_json(value: Any) -> None:
    constraints = Constraints({"x": [0, value]})
    assert constraints.violated({"params": {"x": value}}) is None
    assert constraints.violated({"params": {"x": [value]}}) == "x"


@pytest.mark.req("TRUST-6")
def test_values_without_canonical_json_constrain_nothing() -> None:
    with pytest.raises(HearthNetError, match="no canonical JSON") as caught:
        Constraints({"x": [2**60]})
    assert caught.value.code == "bad_request"
