"""Posts are found by words and tags in a time that does not grow with the market."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet.core import ids
from hearthnet.core.times import rfc3339
from hearthnet.service.effects.event_log import Event, Recorded
from hearthnet_market.read_model import View
from hearthnet_market.schemas import CREATED, ListInput

START = 1_700_000_000_000


def _post(lamport: int, title: str, *tags: str) -> Recorded:
    event = Event(
        event_id=ids.new_ulid(START + lamport),
        event_type=CREATED,
        wall_clock=rfc3339(START),
        community_id="",
        author=ids.node_id(bytes(32)),
        client_id=ids.new_ulid(),
        data={"category": "offer", "title": title, "body": "To lend.", "ttl_seconds": 3600, "tags": tags},
        arguments_digest="",
        frame="",
        approval=None,
    )
    return Recorded(event, lamport)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    opened = View(tmp_path / "view.db")
    yield opened
    opened.close()


def _found(view: View, query: str, k: int = 10) -> list[str]:
    posts, _ = view.search(query, k, START)
    scores = [post["score"] for post in posts]
    assert scores == sorted(scores, reverse=True)
    return [post["title"] for post in posts]


@pytest.mark.req("MARKET-19")
def test_rare_words_rank_and_common_ones_fill_up_from_the_newest(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet_market.queries.COMMON", 3)
    monkeypatch.setattr("hearthnet_market.queries._NEWEST", 4)
    titles = [f"garden chair {number}" for number in range(5)] + [f"garden {number}" for number in range(5)]
    titles[2] = "garden chair zither"
    view.apply([_post(place + 1, title) for place, title in enumerate(titles)])
    assert _found(view, "zither garden")[0] == "garden chair zither"
    assert len(_found(view, "zither garden")) == 5
    assert _found(view, "garden xyzzy") == ["garden 4", "garden 3", "garden 2", "garden 1"]
    # What has all the words comes along, however many newer posts have one of them.
    assert {"garden chair 4", "garden chair 3", "garden 4"} <= set(_found(view, "chair garden"))
    assert _found(view, "xyzzy plugh") == []
    assert len(_found(view, "garden", k=2)) == 2


@pytest.mark.req("MARKET-1", "MARKET-19")
def test_tags_are_compared_whole_however_they_are_looked_up(view: View) -> None:
    view.apply(
        [
            _post(1, "first", "zero waste", "Garten"),
            _post(2, "second", "zero", "waste"),
            _post(3, "third", "!!", "Gärten"),
            _post(4, "fourth", "zero waste", "gardens", "!!"),
        ]
    )

    def listed(*tags: str, since: int = 0) -> list[str]:
        posts, _ = view.current(ListInput(since, 50, None, tags), START)
        return [post["title"] for post in posts]

    assert listed("zero waste") == ["fourth", "first"]
    assert listed("zero") == ["second"]
    assert listed("Garten") == ["first"]
    assert listed("garden") == []
    assert listed("!!") == ["fourth", "third"]
    assert listed("!!", "zero waste") == ["fourth"]
    assert listed("zero waste", since=1) == ["fourth"]
    assert listed('x" OR "zero') == []
    assert listed("\x00") == []
