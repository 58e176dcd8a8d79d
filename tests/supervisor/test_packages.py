"""Packages of others on a real node: what they bring works, and what is wrong with it harms nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hearthnet.trust.keys import Identity
from tests.helpers.packages import contract, service_code, sign, write_package
from tests.helpers.shell import Shell

pytestmark = pytest.mark.e2e
BODY = '{"params":{},"input":{"name":"Ada"}}'
_SETTINGS = "[server]\nport = 0\n[gateway]\nenabled = false\n[services]\nenabled = {}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, on the path of every process of the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A home whose node is not started yet."""
    shell = Shell(tmp_path / "home")
    shell.home.mkdir()
    return shell


def enable(shell: Shell, *services: str) -> None:
    """Write the settings with these services."""
    (shell.home / "hearthnet.toml").write_text(_SETTINGS.format(json.dumps(services)))


def of_service(page: dict[str, Any], name: str) -> dict[str, Any]:
    """A service in `hearthnet status --json`."""
    return next(service for service in page["services"] if service["name"] == name)


@pytest.mark.req("OTHERS-2", "OTHERS-4", "OTHERS-6")
def test_what_is_wrong_with_packages_is_refused_alone(site: Path, shell: Shell) -> None:
    altered = write_package(site, "hello", contract(summary="Greet a person."), code=service_code("hello"))
    sign(altered, Identity.generate())
    (altered / "hello.greet@1.0.json").write_text(json.dumps(contract()))
    write_package(site, "broken", contract("broken.a@1.0"), code="raise ValueError('no such device')\n")
    write_package(site, "first", contract("twin.same@1.0"), code=service_code("twin", "twin.same@1.0"))
    write_package(site, "second", contract("twin.same@1.0"))
    greedy = write_package(site, "greedy", contract("market.greet@1.0"))
    write_package(site, "odd", entry_points="[hearthnet.services]\nodd\n")
    enable(shell, "hello", "broken", "first", "mesh")
    with shell.node():
        reply = shell.json("call", "hello.greet", "--body", BODY, "--json")
        assert reply["output"] == {"text": "Hello Ada"}
        refused = shell.run("call", "twin.same", "--body", BODY)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert "twin.same: first 1.0 and second 1.0 both have it; uninstall one of them" in refused.stderr
        page = shell.json("status", "--json")
        assert [of_service(page, name)["state"] for name in ("hello", "mesh")] == ["ready", "ready"]
        broken, first = of_service(page, "broken"), of_service(page, "first")
        assert (
            "cannot load broken_package:GreetService of broken 1.0: ValueError: no such device"
            in broken["note"]
        )
        twin = "cannot use twin.same: first 1.0 and second 1.0 both have it; uninstall one of them"
        assert twin in first["note"]
        errors = page["package_errors"]
        assert twin in errors
        assert any("odd 1.0: a line of its entry_points.txt is malformed" in text for text in errors)
        assert any(
            text.startswith(
                f"cannot use {greedy / 'market.greet@1.0.json'} of greedy 1.0: market is a namespace"
            )
            for text in errors
        )
        unshared = "cannot offer hello.greet@1.0 of hello 1.0 to other homes: "
        assert any(text.startswith(unshared) and "sign it anew" in text for text in errors)
        assert len(errors) == 4
        shown = shell.run("status").stdout
        up, log = shell.home.with_suffix(".log").read_text(), (shell.home / "logs" / "up.log").read_text()
        for text in errors:
            assert text in shown
            assert text in up
            assert text in log
        assert "ValueError: no such device" in shown
        assert "no such device" in (shell.home / "logs" / "broken.log").read_text()


@pytest.mark.req("OTHERS-3")
def test_a_contract_changed_under_its_version_is_refused(site: Path, shell: Shell) -> None:
    folder = write_package(site, "hello", contract(), code=service_code("hello"))
    enable(shell, "hello")
    with shell.node():
        assert shell.json("status", "--json")["package_errors"] == []
    (folder / "hello.greet@1.0.json").write_text(json.dumps(contract(side_effects=True, idempotent="no")))
    with shell.node():
        page = shell.json("status", "--json")
        (text,) = page["package_errors"]
        seen = shell.home / "contracts.json"
        assert text.startswith("cannot use hello.greet@1.0 of hello 1.0: it was another contract when")
        assert str(seen) in text
        assert text[:100] in of_service(page, "hello")["note"]
        assert of_service(page, "hello")["state"] != "ready"
