"""The signature and docstring of a function as the schemas of a request and a reply. Pure.

The texts of parameters are read from an `Args:` section, or from `:param name: text`.

See: docs/services.md#types.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from types import CodeType
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.service.call import Call
from hearthnet.service.stream import Stream

_SECTIONS: Final = frozenset({"args:", "arguments:", "parameters:"})
_OTHERS: Final = frozenset({"returns:", "raises:", "yields:", "example:", "examples:", "note:", "notes:"})
_ARGUMENT: Final = re.compile(r"(?P<name>\w+)(?:\s*\([^)]*\))?:\s+(?P<text>\S.*)")
_PARAM: Final = re.compile(r":param\s+(?:[^:]*\s)?(?P<name>\w+):\s*(?P<text>.*)")
_SECTION_FIELD: Final = re.compile(r":\w+[^:]*:")
_LONGEST_SUMMARY: Final = 160


class Docstring(NamedTuple):
    """The parts of a docstring; `description` is empty where it says no more than `summary`."""

    summary: str
    description: str
    parameters: dict[str, str]


def read_docstring(documented: Any, otherwise: str) -> Docstring:
    """Return the parts of the docstring of `documented`; without one, the summary is `otherwise`."""
    lines = (inspect.getdoc(documented) or otherwise).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    section = last = ""
    for line in lines:
        text = line.strip()
        form = _ARGUMENT if section == "args" else _PARAM
        if not line[:1].isspace() and text.lower() in _SECTIONS | _OTHERS:
            section, last = ("args" if text.lower() in _SECTIONS else "other"), ""
        elif found := form.fullmatch(text):
            last = found["name"]
            parameters[last] = found["text"]
        elif not text or _SECTION_FIELD.match(text):
            last = ""
            kept += [""] if not text and not section else []
        elif last:
            parameters[last] += f" {text}"
        elif not section or not line[:1].isspace():
            section = ""
            kept.append(line.rstrip())
    summary = next((line.strip() for line in kept if line.strip()), otherwise)
    description = "\n".join(kept).strip()
    return Docstring(_cut(summary), "" if description == summary else description, parameters)


def _cut(summary: str) -> str:
    """Return the summary, as long as a contract has one."""
    return summary if len(summary) <= _LONGEST_SUMMARY else f"{summary[: _LONGEST_SUMMARY - 3]}..."


_FIELD: Final = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE: Final = "#/$defs/"
_NAMES: Final = frozenset({"properties", "patternProperties"})
"""Keywords whose members are names instead of keywords."""
_MISSING: Final = inspect.Parameter.empty


class FunctionSignature(msgspec.Struct, frozen=True):
    """A function as a handler: the type and schema of its input, and the schema of its output."""

    takes_call: bool
    input_type: type[msgspec.Struct]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


def place_of(function: Callable[..., Any]) -> str:
    """Return `file:line` of a function, that of its first decorator."""
    code = code_of(function)
    return f"{code.co_filename}:{code.co_firstlineno}"


def code_of(function: Callable[..., Any]) -> CodeType:
    """Return the code of a function, that of the innermost one where decorators wrap it.

    Raises:
        HearthNetError: `bad_request` for any other object.
    """
    inner = inspect.unwrap(function)
    if not inspect.isfunction(inner):
        raise HearthNetError("bad_request", f"{function!r} cannot provide a capability: it is no function")
    return inner.__code__


def definition_error(function: Callable[..., Any], problem: str) -> HearthNetError:
    """Return the error for a function that cannot provide a capability, with its place."""
    return HearthNetError("bad_request", f"{place_of(function)}: {function.__qualname__} {problem}")


def read_signature(function: Callable[..., Any], docstring: Docstring) -> FunctionSignature:
    """Return the signature of `function`, with the descriptions in `docstring`.

    Raises:
        HearthNetError: `bad_request` with file, line and remedy for a function that is not async, a parameter
            without annotation, `*args` and `**kwargs`, and a type or default without a schema.
    """
    _check_kind(function)
    hints = _hints(function)
    parameters = list(inspect.signature(function).parameters.values())
    takes_call = bool(parameters) and _is_call(hints.get(parameters[0].name))
    fields: list[tuple[str, Any, Any]] = []
    properties: dict[str, Any] = {}
    for parameter in parameters[1:] if takes_call else parameters:
        name = parameter.name
        hint = _checked(function, parameter, hints)
        properties[name] = _schema(function, hint, f"the parameter `{name}`")
        if text := docstring.parameters.get(name):
            properties[name].setdefault("description", text)
        if parameter.default is not _MISSING:
            properties[name]["default"] = _default(function, parameter, hint)
            # A Struct takes no list or object as a default: each request gets its own copy.
            fields.append((name, hint, msgspec.field(default_factory=partial(deepcopy, parameter.default))))
        else:
            fields.append((name, hint, msgspec.field()))
    required = [one[0] for one in fields if "default" not in properties[one[0]]]
    return FunctionSignature(
        takes_call,
        msgspec.defstruct(f"{function.__name__}_input", fields, kw_only=True),
        {"type": "object", "required": required, "properties": properties},
        _schema(function, hints["return"], "the result"),
    )


def _check_kind(function: Callable[..., Any]) -> None:
    if inspect.isasyncgenfunction(function):
        raise definition_error(
            function, "yields, and a function cannot stream: return the whole value, as a list"
        )
    if not inspect.iscoroutinefunction(function):
        raise definition_error(
            function, "is not async; write `async def`, and put work that blocks in asyncio.to_thread"
        )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of `function`, that of its result included."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise definition_error(
            function, f"has types that cannot be read: {error}; define or import them in its module"
        ) from error
    if "return" not in hints:
        raise definition_error(
            function, "has no annotation for its result; write it, such as `-> str`, or `-> None` for none"
        )
    return hints


def _is_call(hint: Any) -> bool:
    return hint is Call or typing.get_origin(hint) is Call


def _checked(function: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    """Return the type of a parameter that a request can fill in."""
    name, hint = parameter.name, hints.get(parameter.name)
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise definition_error(
            function, f"takes {stars}{name}, which no schema describes; name each parameter, or take a list"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise definition_error(
            function, "has parameters before `/`, which callers cannot name; remove the `/`"
        )
    if hint is None:
        raise definition_error(
            function, f"has no annotation for `{name}`; write its type, such as `{name}: str`"
        )
    if _is_call(hint):
        raise definition_error(
            function, f"takes a Call as `{name}`; make it the first parameter, and the only Call"
        )
    if hint is Stream:
        raise definition_error(
            function, f"takes a Stream as `{name}`, and a function cannot stream: remove it"
        )
    if not _FIELD.fullmatch(name):
        raise definition_error(
            function, f"has the parameter `{name}`; name it with small letters, digits and _, a letter first"
        )
    return _described(hint)


def _described(hint: Any) -> Any:
    """Return a type with the text beside it (`Annotated[str, "text"]`) as its description."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    inner, *beside = typing.get_args(hint)
    for note in beside:
        made = msgspec.Meta(description=note) if isinstance(note, str) else note
        inner = typing.Annotated[inner, made]
    return inner


def _default(function: Callable[..., Any], parameter: inspect.Parameter, hint: Any) -> Any:
    """Return a parameter's default as JSON."""
    try:
        value = msgspec.to_builtins(parameter.default)
        msgspec.convert(value, hint)
    except (TypeError, ValueError) as error:
        raise definition_error(
            function, f"has a default for `{parameter.name}` that is not of its type: {error}; change either"
        ) from error
    return value


def _schema(function: Callable[..., Any], hint: Any, what: str) -> dict[str, Any]:
    """Return the schema of a type, without references."""
    if key := _other_key(hint):
        raise definition_error(
            function, f"has keys of the type {key} in {what}; JSON has texts only: dict[str, ...]"
        )
    try:
        (schema,), components = msgspec.json.schema_components([hint], ref_template=_REFERENCE + "{name}")
        found: dict[str, Any] = _inlined(schema, components, ())
    except RecursionError as error:
        raise definition_error(
            function, f"has a type in {what} that contains itself; use dict[str, Any] there"
        ) from error
    except TypeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise definition_error(
            function,
            f"has a type without a schema for {what}: {reason}; use str, int, float, bool, list, dict, "
            "Literal, an Enum, a dataclass, a TypedDict or a msgspec.Struct",
        ) from error
    return found


def _other_key(hint: Any) -> str:
    """Return the type of keys that are no texts, in a dict of the annotation; empty without."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is dict and arguments[0] is not str:
        return getattr(arguments[0], "__name__", str(arguments[0]))
    return next(filter(None, map(_other_key, arguments)), "")


def _inlined(schema: Any, components: dict[str, Any], within: tuple[str, ...]) -> Any:
    """Return a copy of a schema with references replaced, since contracts are taken apart into tools.

    Titles, which are names of classes, are left out: renaming a class changes no contract.
    """
    if isinstance(schema, list):
        return [_inlined(item, components, within) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    if (reference := schema.get("$ref")) is not None:
        name = str(reference).removeprefix(_REFERENCE)
        if name in within:
            raise RecursionError(name)
        found = _inlined(components[name], components, (*within, name))
    for key, inner in schema.items():
        if key in _NAMES:
            found[key] = {name: _inlined(one, components, within) for name, one in inner.items()}
        elif key in ("default", "enum", "const"):
            found[key] = inner
        elif key not in ("$ref", "title"):
            found[key] = _inlined(inner, components, within)
    return found
