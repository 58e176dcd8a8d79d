"""Tables of fields and words: the native name by ours, read in both directions.

A table has the fields that an object of the vendor and a struct of ours have in common. `forms` adds, by our
name, what converts a value that natively has another form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hearthnet_llm.vendors.json_access import refuse
from hearthnet_llm.vendors.wire import Json

_Ours = TypeVar("_Ours")


def same_names(*names: str) -> dict[str, str]:
    """Return a table of fields whose native names are ours."""
    return {name: name for name in names}


def write_fields(
    value: Any, names: Mapping[str, str], forms: Mapping[str, Callable[[Any], Any]] = {}
) -> Json:
    """Return the native fields of `value` that are not None."""
    made = {}
    for ours, native in names.items():
        one = getattr(value, ours)
        if one is not None:
            made[native] = forms[ours](one) if ours in forms else one
    return made


def read_fields(
    native: Json,
    names: Mapping[str, str],
    forms: Mapping[str, Callable[[Any, str], Any]] = {},
    where: str = "",
) -> Json:
    """Return our fields of a native object, None for a missing one.

    A form is called with the value and its path, which begins with `where`.
    """
    made = {}
    for ours, its in names.items():
        one = native.get(its)
        made[ours] = forms[ours](one, where + its) if one is not None and ours in forms else one
    return made


def our_word(words: Mapping[_Ours, Any], native: Any, where: str) -> _Ours | None:
    """Return our word for a native one, None for None.

    Raises:
        HearthNetError: `bad_request` for an unknown word.
    """
    if native is None:
        return None
    for ours, its in words.items():
        if its == native:
            return ours
    refuse(where, f"no {native!r} is known")
