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


_DEEP, _WIDE = 3, 12
"""Maximum number of keywords of a subschema, and of the schema around them.

Most subschemas with more have more leaves than they may: they are drawn again, which took most of the time.
"""


def _schemas(inner: st.SearchStrategy[Any], most: int = _DEEP) -> st.SearchStrategy[Any]:
    """Schemas with `inner` at every place of 2020-12 that takes a schema, and up to `most` keywords."""
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
    parts = {**one, **logic, **lists, **named, **plain}
    keywords = st.lists(st.sampled_from(list(parts)), max_size=most, unique=True)
    return keywords.flatmap(lambda chosen: st.fixed_dictionaries({name: parts[name] for name in chosen}))


SCHEMAS = st.recursive(st.booleans(), _schemas, max_leaves=8)
OBJECTS = _schemas(SCHEMAS, _WIDE).map(lambda schema: {**schema, "type": "object"})
