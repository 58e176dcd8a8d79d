"""The gateway of a node that `hearthnet up` runs, and the commands about it."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import opening, parts_of
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

SETTINGS = "[server]\nport = 0\n\n[community]\nport = 0\n\n[services]\nenabled = []\n"

LINK = re.compile(r"^page\s+(http://127\.0\.0\.1:\d+/#code=\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell whose node runs with its gateway and no service, on a computer whose port 8420 is in use."""
    shell = Shell(tmp_path_factory.mktemp("gateway") / "home")
    shell.home.mkdir()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (shell.home / "hearthnet.toml").write_text(f"{SETTINGS}\n[gateway]\nport = {port}\n")
        with shell.node():
            assert urlsplit(address(shell)).port != port
            # Half a request, which must not hold up the end of the node.
            with socket.create_connection(("127.0.0.1", urlsplit(address(shell)).port or 0)) as slow:
                slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127")
                yield shell


def address(shell: Shell) -> str:
    """Where the gateway is, empty while it is not."""
    return read_node_state(Home(shell.home)).gateway_url


def opened(url: str, page: Identity | None = None) -> httpx2.Response:
    """What a page does with its link, with a key or without one."""
    base, code, node = parts_of(url)
    with httpx2.Client(base_url=base, trust_env=False, timeout=30) as http:
        body = {"code": code} if page is None else opening(page, code, node)
        return http.post("/v1/session", json=body)


@pytest.mark.e2e
@pytest.mark.req("GATE-5", "GATE-3")
def test_the_link_that_the_node_prints_opens_its_page_once(shell: Shell) -> None:
    log = shell.home.with_suffix(".log")
    found = wait_for_sync(lambda: LINK.search(log.read_text()), 30, "the link")
    page = Identity.generate()
    assert opened(found[1], page).json()["key"] == page.node_id
    assert opened(found[1], page).status_code == 401
    rows = shell.json("clients", "list", "--json")
    assert [(row["made_by"], row["principal"], row["key"]) for row in rows] == [
        ("link", "owner", page.node_id)
    ]
    assert not any("secret" in row for row in rows)


@pytest.mark.e2e
@pytest.mark.req("GATE-5", "GATE-3")
def test_a_new_link_for_a_guest(shell: Shell) -> None:
    made = shell.json("link", "--guest", "anna", "--json")
    assert opened(made["url"]).json()["principal"].endswith("/anna")
    plain = shell.run("link")
    assert opened(plain.stdout.strip()).json()["principal"].endswith("/owner")
    refused = shell.run("link", "--guest", "an/na")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "a principal has 1 to 64 letters" in refused.stderr


@pytest.mark.e2e
@pytest.mark.req("GATE-6")
def test_a_program_is_let_in_and_shut_out_again(shell: Shell) -> None:
    made = shell.json("clients", "add", "editor", "--scope", "llm.chat", "--for", "2h", "--json")
    asking = {"Authorization": f"Bearer {made['secret']}"}
    with httpx2.Client(base_url=made["url"], headers=asking, trust_env=False, timeout=30) as http:
        page = http.get("/v1/me").json()
        assert page["scope"] == {"capabilities": ["llm.chat"], "max_effects": 100}
        assert page["principal"].endswith(f"/{made['principal']}")
        assert made["expires_at"] - made["created_at"] == 2 * 3_600_000
        assert page["expires_at"] == made["expires_at"]
        assert shell.run("clients", "remove", "edito").returncode == 5
        removed = shell.json("clients", "remove", "editor", "--json")
        assert removed == {"id": made["id"], "name": "editor", "removed": True}
        assert http.get("/v1/me").status_code == 401
    key = Identity.generate().node_id
    plain = shell.run("clients", "add", "phone", "--key", key, "--per-minute", "5")
    assert plain.stdout.startswith("hnk_")
    assert "not shown again" in plain.stderr
    (row,) = [one for one in shell.json("clients", "list", "--json") if one["name"] == "phone"]
    assert (row["key"], row["scope"]["rate_limit_per_minute"]) == (key, 5)
    assert "all a guest may" in shell.run("clients", "list").stdout
    assert "no client any more" in shell.run("clients", "remove", "phone").stdout


@pytest.mark.e2e
@pytest.mark.req("GATE-5")
def test_a_gateway_that_is_killed_comes_back(shell: Shell) -> None:
    (before,) = read_node_state(Home(shell.home)).services
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    def back() -> bool:
        (now,) = read_node_state(Home(shell.home)).services
        return bool(now.address) and now.restarts > before.restarts

    wait_for_sync(back, 30, "the gateway to come back")
    with httpx2.Client(base_url=address(shell), trust_env=False, timeout=30) as http:
        assert http.get("/health").json()["ok"]
    assert address(shell) in shell.run("status").stdout


@pytest.mark.e2e
@pytest.mark.req("GATE-15")
def test_the_trace_of_a_request_is_shown(shell: Shell) -> None:
    assert opened(f"{address(shell)}/#code=wrong").status_code == 401
    steps = shell.json("trace", "--json")
    (step,) = [step for step in steps if step["capability"] == "POST /v1/session"][-1:]
    assert (step["service"], step["side"]) == ("gateway", "run")
    assert "POST /v1/session" in shell.run("trace", step["trace"]).stdout


@pytest.mark.req("GATE-6")
def test_an_empty_home_has_neither_clients_nor_links(tmp_path: Path) -> None:
    empty = Shell(tmp_path / "empty")
    empty.home.mkdir()
    for arguments, status, words in (
        (("link",), 3, "no node is running in"),
        (("clients", "add", "x"), 5, "`hearthnet up` makes one"),
        (("clients", "remove", "x"), 5, "there is no client 'x'"),
    ):
        refused = empty.run(*arguments)
        assert (refused.returncode, refused.stdout) == (status, "")
        assert words in refused.stderr
    assert "there is no client" in empty.run("clients", "list").stdout
    assert list(empty.home.iterdir()) == []
