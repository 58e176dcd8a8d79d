"""The examples of a contract: their requests, and the check of answers against them.

The words of `given`, `insert` and `expect` are explained in contracts/_meta.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any


def request_of(example: Mapping[str, Any], made: Any) -> dict[str, Any]:
    """Return the example's request, with the fields of `insert` taken from `made`.

    `made` is the result of preparing `given`.
    """
    request: dict[str, Any] = deepcopy(example["request"])
    for target, source in example.get("insert", {}).items():
        *parents, last = target.split("/")[1:]
        place: Any = request
        for step in parents:
            place = place[step]
        value = made
        for step in source.split("/")[1:]:
            value = value[int(step) if isinstance(value, list) else step]
        place[last] = value
    return request


def missing_from_output(
    expect: Mapping[str, Any], output: Mapping[str, Any], events: Sequence[str] = ()
) -> list[str]:
    """List the parts of `expect` that an answer does not meet.

    The answer is a unary reply's output, or the events of a stream's frames.
    """
    missing = [f"no {name} in the output" for name in expect.get("required", ()) if name not in output]
    missing += [f"no frame {event}" for event in expect.get("frames", ()) if event not in events]
    for name, value in expect.get("output", {}).items():
        if output.get(name) != value:
            missing.append(f"{name} is {output.get(name)!r}, not {value!r}")
    for key, least in expect.items():
        name = key.removeprefix("min_")
        if name != key and len(output.get(name, ())) < least:
            missing.append(f"fewer than {least} {name}")
    return missing
