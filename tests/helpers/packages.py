"""Packages of others, written as pip would install them: a folder of code, and one of metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hearthnet.contracts import Contract
from hearthnet.trust.contract_signature import sign_contract
from hearthnet.trust.keys import Identity

_SERVICE = """from __future__ import annotations

from typing import ClassVar

import msgspec

from hearthnet import Call, Offer, Reply, Service, capability


class Nothing(msgspec.Struct):
    pass


class Person(msgspec.Struct):
    name: str


class GreetService(Service):
    name: ClassVar[str] = "{name}"

    def offers(self) -> list[Offer]:
        return [Offer(capability="{capability}")]

    @capability("{capability}")
    async def greet(self, call: Call[Nothing, Person]) -> Reply:
        return Reply({{"text": f"{greeting} {{call.input.name}}"}})
"""

_PROJECT = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"
dependencies = ["hearthnet", "msgspec"]

[project.entry-points."hearthnet.contracts"]
{name} = "{name}_package.contracts"

[project.entry-points."hearthnet.services"]
{name} = "{name}_package:GreetService"

[tool.hatch.build.targets.wheel]
packages = ["{name}_package"]
"""


def contract(capability: str = "hello.greet@1.0", **changed: Any) -> dict[str, Any]:
    """The contract of a capability that greets a person by name."""
    name, _, version = capability.partition("@")
    text = {"type": "string", "description": "Name of the person"}
    request = {"params": {"type": "object", "properties": {}}}
    request["input"] = {"type": "object", "required": ["name"], "properties": {"name": text}}
    answer = {"output": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}
    return {
        "name": name,
        "version": version,
        "stability": "stable",
        "summary": "Greet a person by name.",
        "trust_required": "member",
        "side_effects": False,
        "idempotent": "pure",
        "timeout_seconds": 5,
        "max_concurrent": 4,
        "request_schema": {"type": "object", "required": ["params", "input"], "properties": request},
        "response_schema": {"type": "object", "required": ["output", "meta"], "properties": answer},
        "stream_schema": None,
        "offer_params": {"type": "object", "properties": {}},
        "match": {},
        "errors": [],
        "examples": [],
        **changed,
    }


def write_package(
    site: Path, name: str, *contracts: dict[str, Any], code: str = "", entry_points: str | None = None
) -> Path:
    """Install a package `name` with its contracts in the folder `site`; return the folder of the contracts.

    Its module is `code`, and its service is the class GreetService in it.
    """
    folder = _write_code(site, name, contracts, code)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    brings = f"[hearthnet.contracts]\n{name} = {name}_package.contracts\n" if contracts else ""
    serves = f"[hearthnet.services]\n{name} = {name}_package:GreetService\n" if code else ""
    (about / "entry_points.txt").write_text(brings + serves if entry_points is None else entry_points)
    return folder


def write_project(root: Path, name: str, *contracts: dict[str, Any], code: str) -> Path:
    """The same package as a project from which a wheel can be built; return the folder of the contracts."""
    folder = _write_code(root, name, contracts, code)
    (root / "pyproject.toml").write_text(_PROJECT.format(name=name))
    return folder


def _write_code(root: Path, name: str, contracts: Iterable[dict[str, Any]], code: str) -> Path:
    folder = root / f"{name}_package" / "contracts"
    folder.mkdir(parents=True)
    for one in contracts:
        (folder / f"{one['name']}@{one['version']}.json").write_text(json.dumps(one, indent=1))
    (folder.parent / "__init__.py").write_text(code)
    return folder


def sign(folder: Path, identity: Identity) -> None:
    """Sign every contract of a package."""
    for file in folder.glob("*@*.json"):
        signature = sign_contract(identity, msgspec.json.decode(file.read_bytes(), type=Contract))
        file.with_suffix(".sig").write_bytes(msgspec.json.encode(signature))


def service_code(name: str, capability: str = "hello.greet@1.0", greeting: str = "Hello") -> str:
    """The module of a package whose service answers `capability`."""
    return _SERVICE.format(name=name, capability=capability, greeting=greeting)
