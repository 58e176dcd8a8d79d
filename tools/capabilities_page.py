"""Write docs/capabilities.md from the contracts (`make capabilities`).

The page is a function of the files in contracts/ alone: the same contracts give the same bytes, which
tests/test_capabilities_page.py compares with the committed page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import MatchRule
from hearthnet.contracts.registry import COMMON, contracts, expand

LEAST_SHARED: Final = 4
"""Fields of a shared definition that has a section of its own."""
ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "capabilities.md"
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_REPEATS: Final = {
    "pure": "a read: it may be repeated at will",
    "client_id": "once per caller and `client_id`; a repetition returns the first outcome",
    "natural": "once per thing that the call names, whoever calls",
    "no": "each call stands alone, and a repetition may give another answer",
}
_TRUST: Final = {
    "unknown": "anybody",
    "invited": "the key of an invite that is still open, and members",
    "member": "members",
    "trusted": "members of level trusted or anchor",
    "anchor": "members of level anchor",
    "self": "the serving node itself",
}
_SCOPES: Final = {"community": "on the community", "node": "on the provider's node"}
_APPROVALS: Final = {
    "any": "an approval by the principal's key, or by its gateway for a client without one",
    "own_key": "an approval by the principal's own key",
}
_CONDITIONS: Final = "Some values have to meet more than this table says: `if` in the contract's file.\n"
_HEAD: Final = """\
# Capabilities

Made from the files in `contracts/` by `make capabilities`; change those, not this page. It describes
{count} contracts. What a contract is, and which changes it may have, is in [contracts.md](contracts.md).

## How to read this page

- **Fields** are written in dotted form: `input.query` is the member `query` of the member `input` of the
  body; `[]` stands for each item of an array, `.*` for each member of an object whose names are free, and
  `{{type=text}}` for the form of an object whose `type` is `text`, where there are several. *Required*
  refers to the object that holds the field; *in one form* means that only some of the alternative forms of
  that object have the field, or demand it.
- **Types** that several contracts share are links into [Shared types](#shared-types).
- **Unknown fields** are ignored by the receiver, so that a later minor version can add some, unless *no
  others* is said.
- **Callers** are the least level of trust that the provider accepts. A token can only narrow it.
- **Timeout** is the time limit of a call that names none. **At once** is the number of calls that one
  process takes at a time, unless its offer says otherwise.
- **Body** is the maximum size of a request's body, unknown fields included (`payload_too_large`).
- **Errors** are the codes to expect besides those that any call can end with: a body that does not fit the
  schema (`bad_request`), a version or hash that differs (`schema_mismatch`), missing authority, a spent
  budget, a full or absent provider, a deadline, an effect whose end is not known (`outcome_unknown`).
- **Schema hash** is BLAKE3 over the canonical JSON of name, version and the three schemas. A caller passes
  over an offer of the same version with another hash: equal versions must mean equal schemas.
"""


class Row(NamedTuple):
    """One field of a table."""

    path: str
    kind: str
    required: str
    limits: str
    meaning: str


def page() -> str:
    """The whole page."""
    every = list(contracts())
    parts = [_HEAD.format(count=len(every)), "## Overview\n", _overview(every), *map(_section, every)]
    parts += ["## Shared types\n", *map(_shared_section, _shared())]
    return "\n".join(parts)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading without markup."""
    kept = (char for char in heading.lower() if char.isalnum() or char in " -_")
    return "".join(kept).replace(" ", "-")


def _overview(every: Iterable[Contract]) -> str:
    rows = (
        [
            f"[{one.id}](#{anchor(one.id)})",
            text(one.summary),
            one.trust_required,
            one.effect_scope or "-",
            "yes" if one.stream_schema is not None else "no",
        ]
        for one in every
    )
    return table(["capability", "what it does", "callers", "effect", "streams"], rows)


def _section(contract: Contract) -> str:
    parts = [f"## {contract.id}\n", f"{text(contract.summary)}\n", _facts(contract)]
    parts += _fields("Request", contract.request_schema)
    parts += _fields("Reply", contract.response_schema)
    parts += _frames(contract.stream_schema)
    parts += _offers(contract)
    return "\n".join(parts)


def _shared_section(name: str) -> str:
    schema = _shared()[name]
    meaning = text(str(schema.get("description", "")))
    rows = [Row("(itself)", _own_kind(schema), "", limits, "")] if (limits := limits_of(schema)) else []
    rows += _children(schema, "", certain=True)
    parts = [f"### {name}\n", *([f"{meaning}\n"] if meaning else []), _field_table(rows)]
    return "\n".join([*parts, _CONDITIONS] if _is_conditional(schema) else parts)


@cache
def _shared() -> dict[str, dict[str, Any]]:
    """The shared definitions that are worth a section of their own, by name."""
    definitions = json.loads((ROOT / "contracts" / COMMON).read_text("utf-8"))["$defs"]
    expanded = {name: expand(schema, definitions) for name, schema in definitions.items()}
    return {name: schema for name, schema in expanded.items() if _size(schema) >= LEAST_SHARED}


def _size(schema: Any) -> int:
    """How many named fields there are in `schema`."""
    if isinstance(schema, list):
        return sum(map(_size, schema))
    if not isinstance(schema, dict):
        return 0
    return len(schema.get("properties", ())) + sum(map(_size, schema.values()))


def shared_name(schema: Mapping[str, Any]) -> str:
    """The shared type that `schema` is, whatever its description says; empty where it is none."""
    own = _bare(schema)
    return next((name for name, one in _shared().items() if _bare(one) == own), "")


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("description", "default")}


def _facts(contract: Contract) -> str:
    effect, approval = "none: it only reads", "none"
    if contract.side_effects:
        effect = _SCOPES[str(contract.effect_scope)]
        approval = _APPROVALS[str(contract.approval)]
    facts = {
        "Stability": contract.stability,
        "Callers": _TRUST.get(contract.trust_required, code(contract.trust_required)),
        "Effect": effect,
        "Approval": approval,
        "Repetition": _REPEATS[contract.idempotent],
        "Timeout": f"{contract.timeout_seconds} s",
        "At once": str(contract.max_concurrent),
        "Body": f"at most {contract.request_limit:,} bytes",
        "Errors": ", ".join(map(code, contract.errors)) or "none of its own",
        "Schema hash": code(contract.schema_hash),
    }
    return table(["", ""], ([name, value] for name, value in facts.items()))


def _fields(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in _children(schema, "", certain=True) if row.path not in ("params", "input")]
    if rows:
        yield f"**{title}**\n"
        yield _field_table(rows)
    else:
        yield f"**{title}**: no fields.\n"
    if _is_conditional(schema):
        yield _CONDITIONS


def _is_conditional(schema: Any) -> bool:
    """Whether `schema` demands something of some values only (`if`), outside of shared types."""
    if isinstance(schema, list):
        return any(map(_is_conditional, schema))
    if not isinstance(schema, dict):
        return False
    return "if" in schema or any(_is_conditional(one) for one in schema.values() if not _is_shared(one))


def _is_shared(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(shared_name(schema))


def _frames(schema: Mapping[str, Any] | None) -> Iterator[str]:
    if schema is None:
        return
    yield "**Stream frames**\n"
    rows: list[Row] = []
    for event, data in schema.items():
        rows += _field(data, event, "", certain=True)
    yield _field_table(rows)


def _offers(contract: Contract) -> Iterator[str]:
    rows = list(_children(contract.offer_params, "", certain=True))
    if not rows:
        yield "**Offer**: no params; every offer serves every request.\n"
        return
    yield "**Offer**: params that a process announces\n"
    yield _field_table(rows)
    for name, rule in contract.match.items():
        yield f"- {_matching(name, rule)}"
    if contract.match:
        yield "- A field that the request leaves out fits every offer.\n"
    else:
        yield "Every offer serves every request.\n"


def _matching(name: str, rule: MatchRule) -> str:
    field, offer = code(name), code(rule.offer)
    also = f" or is among {code(rule.also)}" if rule.also else ""
    words = {
        "equal": f"{field} equals {offer} of the offer{also}.",
        "in": f"{field} is {offer} of the offer, or among it{also}.",
        "at_most": f"{field} is at most {offer} of the offer.",
        "subset": f"Every item of {field} is in {offer} of the offer.",
    }
    if rule.rule != "pair":
        return words[rule.rule]
    free = f" (`{rule.whatever}`: any)" if rule.whatever else ""
    return f"{code(rule.after or '')}{free} and {field} are one of the pairs in {offer} of the offer."


# --- fields


def _children(schema: Mapping[str, Any], path: str, *, certain: bool) -> list[Row]:
    """A row for each field below `schema`; of fields that several alternatives have, the first is kept."""
    found: dict[str, Row] = {}
    for row in _every_child(schema, path, certain):
        known = found.get(row.path)
        found[row.path] = row if known is None else _merged(known, row)
    return list(found.values())


def _merged(known: Row, other: Row) -> Row:
    kinds = [known.kind, *([other.kind] if other.kind not in known.kind.split(" or ") else [])]
    limits = [part for part in dict.fromkeys((known.limits, other.limits)) if part]
    return known._replace(
        kind=" or ".join(kinds),
        limits=" or ".join(limits) if known.kind != other.kind else known.limits,
        meaning=known.meaning or other.meaning,
        required=known.required if known.required == other.required else "in one form",
    )


def _every_child(schema: Any, path: str, certain: bool) -> Iterator[Row]:
    if not isinstance(schema, Mapping):
        return
    needed = frozenset(schema.get("required", ()))
    for name, inner in schema.get("properties", {}).items():
        if inner is False:
            continue
        below = f"{path}.{name}" if path else name
        required = "yes" if name in needed else "no"
        yield from _field(inner, below, required if certain or required == "no" else "in one form", certain)
    if isinstance(schema.get("items"), Mapping):
        yield from _item(schema["items"], f"{path}[]", certain)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _field(schema["additionalProperties"], f"{path}.*" if path else "*", "no", certain)
    for keyword in _COMBINED:
        for branch in schema.get(keyword, ()):
            yield from _branch(branch, path, certain and keyword == "allOf")


def _branch(branch: Any, path: str, certain: bool) -> Iterator[Row]:
    """An alternative; under a name of its own where a constant tells it from the others."""
    label = _label(branch)
    if isinstance(branch, Mapping) and shared_name(branch):
        yield _row(branch, f"{path}{{{label or shared_name(branch)}}}", "in one form")
    elif label:
        yield _row(branch, f"{path}{{{label}}}", "in one form")
        yield from _every_child(branch, f"{path}{{{label}}}", True)
    else:
        yield from _every_child(branch, path, certain)


def _label(branch: Any) -> str:
    fields = branch.get("properties", {}) if isinstance(branch, Mapping) else {}
    for name, field in fields.items():
        if isinstance(field, Mapping) and isinstance(field.get("const"), str):
            return f"{name}={field['const']}"
    return ""


def _field(schema: Any, path: str, required: str, certain: bool) -> Iterator[Row]:
    yield _row(schema, path, required)
    if not (isinstance(schema, Mapping) and shared_name(schema)):
        yield from _every_child(schema, path, certain)


def _item(schema: Mapping[str, Any], path: str, certain: bool) -> Iterator[Row]:
    """The item of an array has a row of its own where there is more to say than its type."""
    if shared_name(schema):
        return
    row = _row(schema, path, "")
    if row.limits or row.meaning:
        yield row
    yield from _every_child(schema, path, certain)


def _row(schema: Any, path: str, required: str) -> Row:
    if not isinstance(schema, Mapping):
        return Row(path, "any", required, "", "")
    limits = "" if shared_name(schema) else limits_of(schema)
    return Row(path, kind_of(schema), required, limits, str(schema.get("description", "")))


def kind_of(schema: Mapping[str, Any]) -> str:
    """The type of a value, in words."""
    if name := shared_name(schema):
        return f"[{name}](#{anchor(name)})"
    return _own_kind(schema)


def _own_kind(schema: Mapping[str, Any]) -> str:
    given = schema.get("type")
    if isinstance(given, list):
        return " or ".join(given)
    if given == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {kind_of(schema['items'])}"
    if given:
        return str(given)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            kinds = [kind_of(one) for one in schema[keyword] if isinstance(one, Mapping)]
            return " or ".join(dict.fromkeys(kinds))
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else []
    return " or ".join(dict.fromkeys(map(_json_type, values))) or "any"


def _json_type(value: Any) -> str:
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")


def limits_of(schema: Mapping[str, Any]) -> str:
    """What a value may be beside its type, in words."""
    found = [
        *_values(schema),
        _range(schema, "minimum", "maximum", ""),
        f"above {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else "",
        _range(schema, "minLength", "maxLength", "characters"),
        _range(schema, "minItems", "maxItems", "items"),
        _range(schema, "minProperties", "maxProperties", "members"),
        f"pattern {code(schema['pattern'])}" if "pattern" in schema else "",
        *_names(schema),
        *_choice(schema),
        "no others" if schema.get("additionalProperties") is False else "",
        f"default {code(_json(schema['default']))}" if "default" in schema else "",
    ]
    return "; ".join(part for part in found if part)


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    if "const" in schema:
        yield code(_json(schema["const"]))
    if "enum" in schema:
        yield ", ".join(code(_json(value)) for value in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        for branch in schema.get(keyword, ()):
            if isinstance(branch, Mapping) and branch.get("type") != "object":
                yield limits_of(branch)


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    names = schema.get("propertyNames")
    if isinstance(names, Mapping):
        yield f"names: {limits_of(names)}"


def _choice(schema: Mapping[str, Any]) -> Iterator[str]:
    """Of alternatives that are told apart by their fields: which belong together."""
    for keyword, words in (("oneOf", "exactly one of"), ("anyOf", "at least one of")):
        branches = [one for one in schema.get(keyword, ()) if isinstance(one, Mapping)]
        choices = [one.get("required") for one in branches]
        if len(choices) > 1 and all(choices) and not any(map(_label, branches)):
            yield f"{words}: " + " | ".join(" and ".join(map(code, names)) for names in choices if names)


def _range(schema: Mapping[str, Any], least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if low is not None and low == high:
        words = f"exactly {low}"
    elif low is None:
        words = f"at most {high}"
    else:
        words = f"at least {low}" if high is None else f"{low} to {high}"
    return f"{words} {unit}".strip()


# --- Markdown


def _field_table(rows: Iterable[Row]) -> str:
    cells = ([code(row.path), row.kind, row.required, row.limits, text(row.meaning)] for row in rows)
    return table(["field", "type", "required", "limits", "meaning"], cells)


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; in its cells a line break would end the row and a bar the cell."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def code(value: str) -> str:
    """`value` as code, whatever it contains."""
    fence = "``" if "`" in value else "`"
    return f"{fence}{value}{fence}"


def text(value: str) -> str:
    """`value` as words: none of it is markup."""
    for char in "\\`*[]<":
        value = value.replace(char, f"\\{char}")
    return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
