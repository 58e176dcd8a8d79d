"""`hearthnet share` and `hearthnet usage`, beside a service process and other homes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hearthnet.backup.home_files import scan
from hearthnet.bus.session.usage_book import UsageBook, UsageCount, UsageKey
from hearthnet.core.times import local_day, now_ms
from tests.cli.conftest import Here
from tests.helpers.mesh import Mesh
from tests.helpers.service_child import Child
from tests.helpers.waiting import wait_for

NEIGHBOURS = "mesh.neighbours@1.0"
BODY: dict[str, Any] = {"params": {}, "input": {}}


@pytest.fixture
def node(home: Path) -> Path:
    """A home that has a key, as one that was started once; no node runs."""
    (home / "keys").mkdir()
    (home / "keys" / "device.key").touch()
    return home


@pytest.mark.req("SHARE-4")
def test_share_sets_lists_and_resets_terms(node: Path, here: Here) -> None:
    assert here("share") == 0
    assert here.out == "every service is shared with every member; see: hearthnet share --help\n"
    (row,) = here.json("share", "llm", "--with", "trusted", "--hours", "22-8", "--per-day", "30m")["services"]
    assert row.pop("open_now") in (True, False)
    assert row == {"service": "llm", "with": "trusted", "hours": ["22:00", "08:00"], "per_day_seconds": 1800}
    here.json("share", "rag", "--hours", "9:30-17")
    here.json("share", "llm", "--with", "nobody")
    assert here("share") == 0
    lines = [line.split() for line in here.out.splitlines()]
    assert lines[1] == ["llm", "nobody", "22:00-08:00", "30", "min", "closed"]
    assert lines[2][:4] == ["rag", "every", "member", "09:30-17:00"]
    (row,) = here.json("share", "llm", "--hours", "0-24", "--per-day", "24h")["services"]
    assert (row["hours"], row["per_day_seconds"], row["with"]) == (None, None, "nobody")
    here.json("share", "llm", "--with", "members")
    assert [one["service"] for one in here.json("share")["services"]] == ["rag"], (
        "terms without limits are none"
    )
    here.json("share", "rag", "--reset")
    assert here.json("share") == {"services": []}
    assert json.loads((node / "sharing.json").read_text()) == {"services": {}}


@pytest.mark.req("SHARE-4")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("lm", "--with", "nobody"), 5, "there is no service 'lm'; did you mean llm?"),
        (("auth", "--with", "nobody"), 2, "it has no terms"),
        (("--with", "nobody"), 2, "name the service"),
        (("llm", "--hours", "8-8"), 2, "0-24 is all day"),
        (("llm", "--hours", "24-8"), 2, "0-24 is all day"),
        (("llm", "--per-day", "25h"), 2, "outside what is allowed"),
        (("llm", "--reset", "--with", "nobody"), 2, "--reset goes with no other option"),
    ],
)
def test_share_refuses_what_it_does_not_understand(
    node: Path, here: Here, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert here("share", *arguments) == code
    assert message in here.err
    assert not (node / "sharing.json").exists()


@pytest.mark.req("SHARE-4")
def test_share_resets_a_damaged_file(node: Path, here: Here) -> None:
    (node / "sharing.json").write_text("{")
    assert here("share", "llm", "--with", "nobody") == 2
    assert "hearthnet share --reset" in here.err
    assert here("share", "--reset") == 0
    assert here.json("share") == {"services": []}


@pytest.mark.e2e
@pytest.mark.req("SHARE-5", "SHARE-8")
@pytest.mark.asyncio
async def test_share_is_in_force_in_a_running_service_and_usage_shows_its_calls(
    mesh: Mesh, children: list[Child], capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys)
    at = ("--home", mesh.home.path)
    with mesh.published():
        children.append(Child(mesh, "mesh"))
        await asyncio.to_thread(children[0].wait_for, "ready")
        async with await mesh.guest_bus() as guest:
            assert (await guest.call(NEIGHBOURS, BODY)).provider == mesh.identity.node_id
            assert here("share", "mesh", "--with", "nobody", *at) == 0

            async def is_hidden() -> bool:
                return not await guest.offers(NEIGHBOURS)

            await wait_for(is_hidden, 10, "the offer to be withdrawn")
            began = local_day(now_ms())
            assert here("share", "mesh", "--reset", *at) == 0

            async def is_there() -> bool:
                return bool(await guest.offers(NEIGHBOURS))

            await wait_for(is_there, 10, "the offer to be there again")
            name = guest.peer.roster.shown_name(guest.peer.node_id)
        (row,) = here.json("usage", *at)["served"]
        assert (row["name"], row["service"], row["calls"]) == (name, "mesh", 1)
        assert row["day"] in (began, local_day(now_ms()))
        assert {"sharing.json", "usage/usage.db"} <= set(scan(mesh.home)), "they are part of backups"
        (row,) = here.json("usage", "--home", mesh.guest.path)["used"]
        assert (row["home"], row["capability"], row["calls"]) == (mesh.identity.node_id, NEIGHBOURS, 1)


@pytest.mark.req("SHARE-8", "SHARE-9")
@pytest.mark.asyncio
async def test_usage_lists_and_forgets(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    here = Here(capsys)
    today = local_day(now_ms())
    at, gone = ("--home", mesh.home.path), "ed25519:" + "A" * 43
    assert here("usage", *at) == 0
    assert here.out.count("  nothing\n") == 2
    async with await mesh.guest_bus() as guest:
        member, name = guest.peer.node_id, guest.peer.roster.shown_name(guest.peer.node_id)
    UsageBook(mesh.home.usage).add(
        [
            (UsageKey(today, "served", member, "llm", "llm.chat@2.0"), UsageCount(2, 200_000, 10, 20)),
            (UsageKey(today, "used", gone, "", "rag.query@1.0"), UsageCount(1, 400)),
            (UsageKey("2020-01-01", "used", member, "", "rag.query@1.0"), UsageCount(1, 400)),
        ]
    )
    assert here("usage", *at) == 0
    served, used = here.out.split("used of other homes by this one")
    assert served.splitlines()[-1].split() == [
        today,
        name,
        "llm.chat@2.0",
        "2",
        *["3", "min", "20", "s", "10", "+", "20"],
    ]
    assert used.splitlines()[-1].split()[1:] == [
        "ed25519:AAAA-AAAA-AAAA-AAAA",
        "rag.query@1.0",
        "1",
        "0.4",
        "s",
        "-",
    ]
    assert here("usage", "--forget", "nobody", *at) == 5
    assert here.json("usage", "--forget", "ed25519:AAAA-AAAA-AAAA-AAAA", *at) == {"home": gone, "removed": 1}
    assert here.json("usage", "--forget", name, *at) == {"home": member, "removed": 1}
    page = here.json("usage", *at)
    assert (page["served"], page["used"]) == ([], [])
