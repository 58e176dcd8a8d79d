"""Functions as capabilities: the contract that follows from a signature, and the functions that have none."""

from __future__ import annotations

import enum
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

import hearthnet
from hearthnet.contracts import Contract
from hearthnet.contracts.namespaces import RESERVED, is_home_only
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.service.authoring.signature import read_docstring

Function = Callable[..., Any]


class Tone(enum.Enum):
    """A tone."""

    WARM = "warm"
    COOL = "cool"


class Person(msgspec.Struct):
    """A person."""

    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 3


@dataclass
class Place:
    """A place."""

    street: str


class Pair(TypedDict):
    """Two numbers."""

    first: int
    second: float


class Node(msgspec.Struct):
    """A tree."""

    children: list[Node]


class Opaque:
    """A class without a schema."""


def contract_of(function: Function, name: str = "hello.greet@1.0", **terms: Any) -> Contract:
    """The contract that a service makes of a function."""
    service = hearthnet.Service("hello")
    assert service.capability(name, **terms)(function) is function
    return service.functions()[0].contract


def fields_of(function: Function) -> dict[str, Any]:
    """The schemas of its parameters."""
    found: dict[str, Any] = contract_of(function).request_schema["properties"]["input"]["properties"]
    return found


@pytest.mark.req("AUTHOR-1")
def test_signature_and_docstring_become_the_contract() -> None:
    async def greet(name: str, times: int = 1) -> str:
        """Greet a person by name.

        In the language of the house.

        Args:
            name: The person's name,
                as it is spoken.
            times (int): How often.

        Returns:
            The greeting.
        """
        return f"Hello {name}" * times

    made = contract_of(greet, timeout_seconds=3)
    assert (made.id, made.summary, made.timeout_seconds) == ("hello.greet@1.0", "Greet a person by name.", 3)
    assert (made.side_effects, made.idempotent, made.trust_required) == (False, "pure", "self")
    assert made.request_schema["description"] == "Greet a person by name.\n\nIn the language of the house."
    assert made.request_schema["properties"]["input"] == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "description": "The person's name, as it is spoken."},
            "times": {"type": "integer", "description": "How often.", "default": 1},
        },
    }
    assert made.response_schema["properties"]["output"] == {"type": "string"}


@pytest.mark.req("AUTHOR-1")
def test_types_become_schemas_without_references() -> None:
    async def greet(
        people: list[Person],
        tone: Tone = Tone.WARM,
        kind: Literal["a", "b"] | None = None,
        place: Annotated[Place, "Where it is."] = Place("Main"),  # noqa: B008
        numbers: dict[str, Pair] = {},  # noqa: B006
    ) -> None:
        """Greet."""

    found = fields_of(greet)
    person = {
        "description": "A person.",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "default": 3}},
        "required": ["name"],
    }
    assert found["people"] == {"type": "array", "items": person}
    assert found["tone"] == {"description": "A tone.", "enum": ["cool", "warm"], "default": "warm"}
    assert found["kind"] == {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None}
    assert found["place"]["default"] == {"street": "Main"}
    assert found["place"]["description"] == "Where it is."
    assert found["numbers"]["additionalProperties"]["properties"]["second"] == {"type": "number"}
    assert found["numbers"]["default"] == {}


@pytest.mark.req("AUTHOR-1")
def test_effect_takes_a_client_id_that_the_caller_makes_up() -> None:
    async def sign(call: hearthnet.Call[Any, Any], name: str) -> int:
        """Sign the book."""
        return 1

    async def own(client_id: str) -> int:
        """Sign the book."""
        return 1

    made = contract_of(sign, side_effects=True)
    assert (made.idempotent, made.effect_scope, made.approval) == ("client_id", "node", "any")
    assert made.request_schema["properties"]["input"]["required"] == ["name", "client_id"]
    alone = contract_of(sign, side_effects=True, idempotent="no", effect_scope="community")
    assert "client_id" not in alone.request_schema["properties"]["input"]["properties"]
    assert alone.effect_scope == "community"
    declared = contract_of(own, side_effects=True).request_schema["properties"]["input"]
    assert declared["properties"] == {"client_id": {"type": "string"}}


@pytest.mark.req("AUTHOR-1")
def test_docstring_of_each_form_describes_parameters() -> None:
    def sphinx() -> None:
        """Do it.

        :param name: the name
            of it
        :param int count: how many
        :returns: nothing
        """

    found = read_docstring(sphinx, "x")
    assert found.parameters == {"name": "the name of it", "count": "how many"}
    assert (found.summary, found.description) == ("Do it.", "")
    assert read_docstring(Opaque(), "hello.it@1.0").summary == "A class without a schema."
    assert read_docstring(lambda: None, "hello.it@1.0").summary == "hello.it@1.0"


async def starred(*names: str) -> str:
    return ""


async def double_starred(**names: str) -> str:
    return ""


async def unannotated(name) -> str:  # type: ignore[no-untyped-def]
    return ""


async def without_result(name: str):  # type: ignore[no-untyped-def]
    return ""


def blocking(name: str) -> str:
    return ""


async def streaming(name: str) -> AsyncIterator[str]:
    yield ""


async def opaque(name: Opaque) -> str:
    return ""


async def opaque_result(name: str) -> list[Opaque]:
    return []


async def recursive(tree: Node) -> str:
    return ""


async def numbered(names: dict[int, str]) -> str:
    return ""


async def late_call(name: str, call: hearthnet.Call[Any, Any]) -> str:
    return ""


async def positional(name: str, /) -> str:
    return ""


async def wrong_default(count: int = "one") -> str:  # type: ignore[assignment]
    return ""


async def unknown_type(name: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


async def capital(Name: str) -> str:
    return ""


@pytest.mark.req("AUTHOR-2")
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (starred, "takes *names, which no schema describes; name each parameter"),
        (double_starred, "takes **names, which no schema describes"),
        (unannotated, "has no annotation for `name`; write its type, such as `name: str`"),
        (without_result, "has no annotation for its result; write it, such as `-> str`"),
        (blocking, "is not async; write `async def`"),
        (streaming, "yields, and a function cannot stream: return the whole value"),
        (opaque, "has a type without a schema for the parameter `name`"),
        (opaque_result, "has a type without a schema for the result"),
        (recursive, "has a type in the parameter `tree` that contains itself; use dict[str, Any]"),
        (numbered, "has keys of the type int in the parameter `names`; JSON has texts only"),
        (late_call, "takes a Call as `call`; make it the first parameter"),
        (positional, "has parameters before `/`"),
        (wrong_default, "has a default for `count` that is not of its type"),
        (unknown_type, "has types that cannot be read: name 'Missing' is not defined"),
        (capital, "has the parameter `Name`; name it with small letters"),
    ],
)
def test_function_without_a_contract_is_refused_with_its_line(function: Function, says: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        contract_of(function)
    line = inspect.getsourcelines(function)[1]
    assert caught.value.code == "bad_request"
    assert caught.value.message.startswith(f"{__file__}:{line}: {function.__name__} {says}")


async def plain(name: str) -> str:
    """Say it."""
    return name


@pytest.mark.req("AUTHOR-2")
@pytest.mark.parametrize(
    ("name", "terms", "says"),
    [
        ("rag.query@9.0", {}, "names in rag are HearthNet's own; take a namespace of your own"),
        ("experimental.greet@1.0", {}, "names in experimental are HearthNet's own"),
        ("hello.greet", {}, "needs its version, such as hello.greet@1.0"),
        ("Hello!", {}, "is not a capability"),
        ("hello.greet@1.0", {"trust": "friend"}, "has trust='friend'; take"),
        ("hello.greet@1.0", {"idempotent": "client_id"}, "without side effects; take pure or no"),
        (
            "hello.greet@1.0",
            {"side_effects": True, "idempotent": "pure"},
            "with side effects; take client_id",
        ),
    ],
)
def test_terms_that_no_contract_has_are_refused(name: str, terms: dict[str, Any], says: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        contract_of(plain, name, **terms)
    assert caught.value.message.startswith(f"{__file__}:")
    assert says in caught.value.message


@pytest.mark.req("AUTHOR-2")
def test_second_function_for_a_capability_is_refused_with_both_lines() -> None:
    service = hearthnet.Service("hello")
    service.capability("hello.greet@1.0")(plain)
    service.capability("hello.greet@1.1")(plain)

    async def other(name: str) -> str:
        return name

    with pytest.raises(HearthNetError, match="and so does plain at ") as caught:
        service.capability("hello.greet@1.0")(other)
    assert f"{__file__}:{inspect.getsourcelines(plain)[1]}; keep one of them" in caught.value.message
    assert [one.contract.id for one in service.functions()] == ["hello.greet@1.0", "hello.greet@1.1"]


@pytest.mark.req("AUTHOR-2")
@pytest.mark.parametrize(
    ("name", "says"),
    [("rag", "HearthNet's own"), ("My service", "cannot name a service"), ("a/b", "cannot name a service")],
)
def test_service_with_another_ones_name_is_refused(name: str, says: str) -> None:
    with pytest.raises(HearthNetError, match=says):
        hearthnet.Service(name)


@pytest.mark.req("AUTHOR-3")
def test_installed_contracts_are_in_reserved_namespaces() -> None:
    names = contracts().names()
    assert not [name for name in names if is_home_only(name)]
    assert {name.partition(".")[0] for name in names} <= RESERVED
    assert is_home_only("hello.greet@1.0")
    assert not is_home_only("search_corpus")


def test_front_door_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hearthnet.nothing  # type: ignore[attr-defined]
