"""The classes of errors: each code has one, wherever the error is made, and a `partition` has a rule.

See: docs/protocol/errors.md#classes, docs/protocol/errors.md#unavailable.
"""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hearthnet.bus.calls.attempt import ConnectionLost, NoResponders
from hearthnet.core import errors
from hearthnet.core.errors import CODES, HearthNetError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol" / "errors.md").read_text("utf-8")
BY_CLASS: Final = {"Unavailable", "ProviderStarting"}
"""Classes of `partition` that are made with a message and details at their places."""
CLASSES = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, HearthNetError) and one.codes
]


@pytest.mark.req("WIRE-12")
def test_each_code_has_exactly_one_class() -> None:
    assert sorted(code for kind in CLASSES for code in kind.codes) == sorted(CODES)


@pytest.mark.req("WIRE-12")
@pytest.mark.parametrize("code", sorted(CODES))
def test_error_has_the_class_of_its_code(code: str) -> None:
    (kind,) = (one for one in CLASSES if code in one.codes)
    made = HearthNetError(code, "x", details={"rule": "used"}, retry_after_ms=3, alt=["a"], exit_status=7)
    for error in (made, HearthNetError(code=code, message="x"), HearthNetError.from_body(made.to_body())):
        assert (type(error), error.code) == (kind, code)
    for same in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        assert (type(same), same.to_body(), same.exit_status) == (kind, made.to_body(), 7)


@pytest.mark.req("WIRE-12")
def test_class_alone_raises_its_first_code() -> None:
    error = errors.NotFound("there is no shelf 'a'")
    assert (error.code, error.message, error.rule) == ("not_found", "there is no shelf 'a'", "")
    assert errors.NotFound("forgotten", code="thread_missing").code == "thread_missing"


@pytest.mark.req("WIRE-12")
def test_class_refuses_the_code_of_another() -> None:
    with pytest.raises(ValueError, match="'timeout' is no code of NotFound"):
        errors.NotFound("late", code="timeout")


@pytest.mark.req("WIRE-12")
def test_an_expired_consent_is_unauthorized() -> None:
    with pytest.raises(errors.Unauthorized, match="over"):
        raise HearthNetError("expired", "it is over")


def _unavailable(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls that make a `partition`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        by_code = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "partition"
        if by_code or (isinstance(node.func, ast.Name) and node.func.id in BY_CLASS):
            yield node


def _rules(call: ast.Call) -> list[object]:
    """The values of `rule=...`, and of `details={"rule": ...}`."""
    named = [one.value for one in call.keywords if one.arg == "rule"]
    named += [
        value
        for node in ast.walk(call)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "rule"
    ]
    return [value.value for value in named if isinstance(value, ast.Constant)]


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for top in ("hearthnet", "services"):
        for file in sorted((ROOT / top).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text("utf-8"))


def _documented() -> set[str]:
    table = PAGE.partition("\n## Unavailable\n")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")}
    return rows - {"rule"}


@pytest.mark.req("WIRE-18")
def test_each_partition_is_raised_with_a_documented_rule() -> None:
    made = [
        (f"{file}:{call.lineno}", _rules(call)) for file, tree in _sources() for call in _unavailable(tree)
    ]
    assert [place for place, rules in made if len(rules) != 1] == []
    assert {rule for _, rules in made for rule in rules} == _documented()
    assert (NoResponders("ed25519:" + "A" * 43).rule, ConnectionLost().rule) == (
        "provider_gone",
        "connection_lost",
    )


@pytest.mark.req("WIRE-12")
def test_rule_of_an_error_is_in_its_details() -> None:
    error = errors.Unavailable("it is gone", rule="provider_gone", details={"node": "a"})
    assert (error.rule, error.details) == ("provider_gone", {"rule": "provider_gone", "node": "a"})
