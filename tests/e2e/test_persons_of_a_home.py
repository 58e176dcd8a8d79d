"""Persons of a home by commands, at a node with its processes: added, signed in, listed, limited, removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.trust.community.person_statements import CONSENT_PURPOSE
from hearthnet.trust.keys import Identity
from tests.helpers.certificates import certificate
from tests.helpers.envelopes import opening, parts_of
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
SETTINGS = (
    '[server]\nport = 0\n\n[community]\nport = 0\n\n[services]\nenabled = ["auth"]\n\n[gateway]\nport = 0\n'
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell whose node runs, with the auth service and a gateway, and whose owner is a person."""
    shell = Shell(tmp_path_factory.mktemp("family") / "home")
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(SETTINGS)
    with shell.node():
        wait_for_sync(lambda: shell.run("person", "show").returncode == 0, what="the owner to be a person")
        yield shell


@contextlib.contextmanager
def signed_in(url: str) -> Iterator[tuple[httpx2.Client, dict[str, Any]]]:
    """A page that has opened a link and is a device: its client with the cookie, and who it is."""
    base, code, node = parts_of(url)
    key = Identity.generate()
    with httpx2.Client(base_url=base, trust_env=False, timeout=30, headers={"Origin": base}) as http:
        me = http.post("/v1/session", json=opening(key, code, node, "Firefox")).json()
        signature = key.sign(CONSENT_PURPOSE, canonical_json({**me["device"]["offer"], "kind": "browser"}))
        consent = {"signature": ids.PREFIX + ids.b64(signature), "kind": "browser"}
        added = http.post("/v1/device", json=consent)
        assert added.status_code == 201, added.text
        yield http, added.json()


@pytest.mark.req("PERSON-40", "PERSON-41", "PERSON-45")
def test_somebody_is_added_signs_in_loses_a_device_and_is_removed(shell: Shell) -> None:
    added = shell.json("person", "add", "anna", "--json")
    assert (added["name"], added["kind"], added["devices"]) == ("anna", "adult", [])
    with signed_in(added["url"]) as (http, me):
        assert (me["person"]["name"], me["device"]["added"]) == ("anna", True)
        (device,) = wait_for_sync(lambda: shell.json("device", "list", "--person", "anna", "--json"))
        assert (device["name"], device["kind"]) == ("Firefox", "browser")
        assert [one["kind"] for one in shell.json("person", "list", "--json")] == ["owner", "adult"]
        shell.json("device", "remove", "Firefox", "--person", "anna", "--yes", "--json")
        refused = wait_for_sync(lambda: answer if (answer := http.get("/v1/me")).is_error else None, 2)
        assert (refused.status_code, refused.json()["error"]) == (403, "revoked")
    with signed_in(shell.json("person", "link", "anna", "--json")["url"]) as (http, _):
        gone = shell.json("person", "remove", "anna", "--yes", "--json")
        assert len(gone["devices"]) == 1
        assert http.get("/v1/me").status_code == 401
    assert not list(Path(shell.home, "persons", "anna").glob("*.key"))
    assert [one["kind"] for one in shell.json("person", "list", "--json")] == ["owner", "removed"]
    for command in (("link", "anna"), ("remove", "nobody", "--yes"), ("words", "anna", "--yes")):
        assert shell.run("person", *command).returncode == 5
    again = shell.json("person", "remove", "anna", "--yes", "--json")
    assert again["devices"] == []
    assert "data of anna is left" in again["unfinished"]  # this node has no rag service
    taken = shell.run("person", "add", "Anna")
    assert (taken.returncode, "a name is used once" in taken.stderr) == (2, True)


@pytest.mark.req("PERSON-43", "PERSON-44")
def test_a_child_has_limits_and_a_name_that_nobody_else_takes(shell: Shell) -> None:
    hours = ("--hours", "07:00-20:00")
    ben = shell.json("person", "add", "ben", "--child", *hours, "--questions", "30", "--json")
    assert ben["limits"] == {"capabilities": [], "hours": ["07:00", "20:00"], "questions": 30}
    listed = shell.run("person", "list").stdout
    assert "reads only; 07:00 to 20:00; 30 questions a day" in listed
    assert "its administrator cannot" in listed
    changed = shell.json("person", "limits", "ben", "--may", "rag.query", "--json")
    assert changed["limits"] == {"capabilities": ["rag.query"], "hours": None, "questions": None}
    assert shell.json("person", "limits", "ben", "--none", "--json")["kind"] == "adult"
    for wrong in (
        ("person", "add", "cleo", *hours),
        ("person", "add", "cleo", "--child", "--hours", "20:00-07:00"),
        ("person", "limits", "ben", "--none", "--questions", "3"),
        ("person", "add", "owner"),
        ("device", "add", "--person", "ben"),
    ):
        assert shell.run(*wrong).returncode == 2, wrong
    for command in (("link", "--guest", "ben"), ("clients", "add", "spy", "--guest", "ben")):
        refused = shell.run(*command)
        assert (refused.returncode, "nobody else sees what is theirs" in refused.stderr) == (4, True)
    removed = shell.run("person", "remove", "ben", "--keep-keys", "--yes")
    assert "ben is removed, with 0 devices" in removed.stdout
    assert list(Path(shell.home, "persons", "ben").glob("*.key"))


@pytest.mark.req("PERSON-46")
def test_no_link_for_a_phone_without_tls(shell: Shell) -> None:
    refused = shell.run("device", "add", "--phone")
    assert refused.returncode == 2
    assert "over TLS only" in refused.stderr
    assert shell.run("device", "add", "--phone", "--person", "nobody").returncode == 5


@pytest.mark.req("PERSON-46", "PERSON-76")
def test_a_phone_gets_a_link_and_a_code_over_tls(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    shell.home.mkdir()
    pem = certificate(tmp_path)
    over_tls = f'host = "0.0.0.0"\ncertificate = "{pem}"\nkey = "{pem}"\nnames = ["kitchen.example"]\n'
    (shell.home / "hearthnet.toml").write_text(SETTINGS + over_tls)
    with shell.node():
        wait_for_sync(lambda: shell.run("person", "show").returncode == 0, what="the owner to be a person")
        shell.json("person", "add", "anna", "--json")
        for person, options in (("owner", ()), ("anna", ("--person", "anna"))):
            made = shell.json("device", "add", "--phone", *options, "--json")
            assert made["guest"] == person
            assert made["url"].startswith("https://kitchen.example:")
        with shell.terminal("device", "add", "--phone", "--person", "anna") as terminal:
            terminal.expect("https://kitchen.example:")
            terminal.expect("\u2588")  # the code
            terminal.expect("opens once, within ten minutes")
            assert terminal.end() == 0
