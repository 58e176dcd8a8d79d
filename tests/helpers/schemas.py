"""JSON Schemas with subschemas at every place that takes one, `true` and `false` among them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.just("x"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas with `inner` at every place of 2020-12 that takes a schema."""
    one = dict.fromkeys(
        ("items", "contains", "additionalProperties", "propertyNames", "unevaluatedProperties"), inner
    )
    logic = dict.fromkeys(("not", "if", "then", "else", "unevaluatedItems"), inner)
    lists = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), st.lists(inner, min_size=1, max_size=2))
    named = dict.fromkeys(
        ("properties", "patternProperties", "dependentSchemas", "$defs"),
        st.dictionaries(NAMES, inner, max_size=2),
    )
    plain: dict[str, Any] = {
        "type": st.sampled_from(["object", "array", "string", ["object", "null"]]),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "default": VALUES,
        "description": st.just("about it"),
    }
    return st.fixed_dictionaries({}, optional={**one, **logic, **lists, **named, **plain})


SCHEMAS = st.recursive(st.booleans(), _schemas, max_leaves=8)
OBJECTS = _schemas(SCHEMAS).map(lambda schema: {**schema, "type": "object"})
