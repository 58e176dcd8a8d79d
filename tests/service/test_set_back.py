"""Nothing that has expired comes back when the computer's clock is set back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hearthnet import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import CLOCK, now_ms
from hearthnet.gateway.auth.login_links import LinkBook
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.keys import Identity
from tests.helpers.household import settle
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.residents import Resident

SetClock = Callable[[int], None]
HOUR, DAY = 3_600_000, 24 * 3_600_000
PACKAGE = Path(__file__).resolve().parents[2]
READERS = {
    "hearthnet/core/times.py": "the clock itself",
    "hearthnet/backup/home_files.py": "compares times of the file system, which go by it",
    "hearthnet/bus/blobs/blob_store.py": "a time in the form of NATS clients, which have no rule for it",
    "hearthnet/bus/blobs/writer.py": "likewise",
    "hearthnet/bus/session/tracing.py": "spans are compared with those of other programs",
    "hearthnet/cli/workflows/diagnosis/running_node.py": "compares times of the file system",
    "services/rag/hearthnet_rag/index/database.py": "the name of a damaged file that is put aside",
    "hearthnet/gateway/openai/chat.py": "a member of answers that OpenAI's clients expect",
}
"""The files that read the computer's clock, with the reason for each."""
CLOCK_READ = re.compile(r"\btime\.time(_ns)?\(|\btime_ns\(|datetime\.now\(|utcnow\(")


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set the computer's clock to so many milliseconds from the real time."""
    real = CLOCK.system

    def change(ahead_ms: int) -> None:
        monkeypatch.setattr(CLOCK, "system", lambda: real() + ahead_ms)

    return change


def restart(home: Home) -> None:
    """Go on as another process after a restart of the computer, by what is on the disk."""
    CLOCK.keep(CLOCK.record)
    CLOCK.follow(home)


@pytest.mark.req("CLOCK-8", "ATTACK-127")
@pytest.mark.asyncio
async def test_a_token_that_has_expired_stays_so(mesh: Mesh, set_clock: SetClock) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        CLOCK.follow(mesh.home)
        lent = Resident(mesh.identity, bus, "owner")
        body = query()
        await lent.call(QUERY, body["params"], **body["input"])
        set_clock(2 * HOUR)
        with pytest.raises(HearthNetError, match="life is over"):
            await lent.call(QUERY, body["params"], **body["input"])
        for _ in range(2):
            set_clock(-DAY)
            with pytest.raises(HearthNetError, match="life is over"):
                await lent.call(QUERY, body["params"], **body["input"])
            restart(mesh.home)


@pytest.mark.req("CLOCK-8", "ATTACK-127")
def test_links_and_invites_that_have_ended_stay_so(tmp_path: Path, set_clock: SetClock) -> None:
    household = settle(tmp_path, {})
    home, key = household.founder, Identity.generate()
    CLOCK.follow(home)
    book = LinkBook(home)
    code = book.make()
    author = CommunityAuthor(household.roster, household.key())
    household.happen(author.invite(key, display_name="Mill", expires_at=now_ms() + HOUR, now_ms=now_ms()))
    assert household.roster.level(key.node_id, now_ms()) == "invited"
    set_clock(2 * HOUR)
    assert household.roster.level(key.node_id, now_ms()) == "unknown"
    set_clock(0)
    restart(home)
    assert household.roster.level(key.node_id, now_ms()) == "unknown"
    with pytest.raises(HearthNetError, match="link"):
        book.use(code)


@pytest.mark.req("CLOCK-8", "ATTACK-127")
def test_a_frame_that_has_counted_does_not_count_again(tmp_path: Path, set_clock: SetClock) -> None:
    CLOCK.follow(Home.resolve(tmp_path))
    window, made = ReplayWindow(), now_ms()
    assert window.check("them", "one", made, now_ms()) == "fresh"
    set_clock(HOUR)
    assert window.check("them", "two", now_ms(), now_ms()) == "fresh", "the first one is forgotten"
    set_clock(0)
    assert window.check("them", "one", made, now_ms()) == "stale"


@pytest.mark.req("CLOCK-8")
def test_every_rule_goes_by_the_homes_time() -> None:
    found = set[str]()
    for folder in ("hearthnet", "services"):
        for place, _, names in os.walk(PACKAGE / folder):
            paths = (Path(place) / name for name in names if name.endswith(".py"))
            found |= {str(one.relative_to(PACKAGE)) for one in paths if CLOCK_READ.search(one.read_text())}
    assert found == set(READERS)
