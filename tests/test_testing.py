"""What an author's tests get: a running node with their service in it."""

from __future__ import annotations

from typing import Any

import pytest

import hearthnet
from hearthnet import NodeContext, testing
from hearthnet.core.errors import HearthNetError
from hearthnet.testing import Node, node_fixture, running_node

service = hearthnet.Service("hello")
book: list[str] = []


@service.capability("hello.sign@1.0", side_effects=True)
async def sign(name: str) -> int:
    """Sign the book."""
    book.append(name)
    return len(book)


class Failing(hearthnet.Service):
    """A service that cannot start."""

    name = "failing"

    async def start(self, node: NodeContext) -> None:
        """Find nothing."""
        raise HearthNetError("not_found", f"there is no book in {node.home.path}")


node = node_fixture(service, scope="module")


@pytest.mark.req("AUTHOR-8")
def test_service_is_called_in_the_process_of_its_test(node: Node) -> None:
    assert node.call("hello.sign", name="Ada") == 1
    assert node.call("hello.sign@1.0", name="Bo") == 2
    assert book == ["Ada", "Bo"]
    with pytest.raises(HearthNetError, match='"name" is a required property') as caught:
        node.call("hello.sign")
    assert caught.value.code == "bad_request"


@pytest.mark.req("AUTHOR-8")
def test_further_service_is_there_for_its_block(node: Node) -> None:
    other = hearthnet.Service("other")

    @other.capability("other.count@1.0")
    async def count(call: hearthnet.Call[Any, Any], words: list[str]) -> dict[str, int]:
        """Count words."""
        return {"words": len(words)}

    with node.hosting(other):
        assert node.call("other.count", words=["a", "b"]) == {"words": 2}
    with pytest.raises(HearthNetError, match=r"nobody offers other.count"):
        node.call("other.count", words=[])


@pytest.mark.req("AUTHOR-8")
def test_service_that_does_not_start_raises_its_error(node: Node) -> None:
    with pytest.raises(HearthNetError, match=f"there is no book in {node.home}"), node.hosting(Failing()):
        pass


@pytest.mark.req("AUTHOR-8")
def test_node_that_does_not_start_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_SETTINGS", "[server]\nport = nothing\n")
    with pytest.raises(HearthNetError, match="the node did not start") as caught, running_node():
        pass
    assert "hearthnet.toml" in caught.value.message
