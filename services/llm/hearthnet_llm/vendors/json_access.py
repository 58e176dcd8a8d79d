"""Access to foreign JSON: lenient parsing, and fields that are refused with their place."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors.wire import Json


def objects(value: Any, path: str) -> list[Json]:
    """Return a list of objects; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        refuse(path, "must be a list of objects")
    return value


def entries(value: Any, path: str) -> list[tuple[Json, str]]:
    """Return the objects of a list, each with its path; None is an empty list."""
    return [(item, f"{path}[{place}]") for place, item in enumerate(objects(value, path))]


def fields(value: Any, path: str) -> Json:
    """Return an object."""
    if not isinstance(value, dict):
        refuse(path, "must be an object")
    return value


def text(value: Any, path: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        refuse(path, "must be a text")
    return value


def value_at(native: Any, path: str) -> Any:
    """Return the value at a path of names with dots between them, or None."""
    for name in path.split("."):
        native = native.get(name) if isinstance(native, dict) else None
    return native


def refuse(path: str, reason: str) -> NoReturn:
    """Raise the error for an invalid value.

    Raises:
        HearthNetError: `bad_request`, always.
    """
    raise HearthNetError("bad_request", f"{path}: {reason}", details={"path": path})


def ungrammatical(request: ChatRequest) -> None:
    """Raise if the request has a grammar for its answer.

    Raises:
        HearthNetError: `bad_request` if it has one, because the model does not support it.
    """
    if request.grammar is not None:
        refuse("/input/grammar", "this model takes no grammar; give a response_schema, or another model")


def checked(request: ChatRequest | Json) -> ChatRequest:
    """Return the request after validating the types of its values.

    Raises:
        HearthNetError: `bad_request`, with the place, if a value has another type than declared.
    """
    try:
        return msgspec.convert(msgspec.to_builtins(request), ChatRequest)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        refuse(place.rstrip("`"), reason)


def without_nones(**fields: Any) -> Json:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def parsed(text: str) -> Any:
    """Return the value of a JSON text, or None if it is none.

    The first attempt is strict, which is fast; the second accepts deviations of servers (NaN, an unpaired
    surrogate, a line break within a string).
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        whole = json.dumps(json.loads(text, strict=False), ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(whole)
    except ValueError:
        return None


def as_text(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
