"""Who attacks: a member with a key and a login of its own, and full control over every byte it sends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.attempt import parse_body
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Header
from hearthnet.service.hosting.reply_sender import ALIVE
from hearthnet.trust.keys import Login
from tests.helpers.waiting import wait_for

LIST = "market.list@1.0"
POST = "market.post@1.0"
LIST_BODY: dict[str, Any] = {"params": {}, "input": {}}
ANSWER_SECONDS = 30.0
NO_ANSWER = "no answer"


def post_body(title: str = "Ladder to lend") -> dict[str, Any]:
    """A complete body of `market.post` under a client id of its own."""
    return {
        "params": {},
        "input": {"client_id": ids.new_ulid(), "category": "offer", "title": title, "body": "Ring twice."},
    }


@dataclass
class Answers:
    """What came back for one call id."""

    frames: list[Frame] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def on_frame(self, frame: Frame) -> None:
        """Keeps a frame, unless it only says that the call is still at work."""
        if frame.header.event == ALIVE:
            return
        self.frames.append(frame)
        self.arrived.set()

    def on_no_responders(self, node: str) -> None:
        """Nobody listens there."""
        self.arrived.set()

    def on_lost(self) -> None:
        """The connection is gone."""
        self.arrived.set()


class Attacker:
    """One process of a member, with the member's key."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.peer = bus.peer

    async def target(self, capability: str, node: str) -> OfferView:
        """The process of `node` that offers `capability`."""

        async def offered() -> OfferView | None:
            # A listing ends shortly after the last answer: on a busy machine a process may be later.
            return next((view for view in await self.bus.offers(capability) if view.node == node), None)

        return await wait_for(offered, what=f"{node} to offer {capability}")

    def header(self, view: OfferView, capability: str, body: dict[str, Any], **changes: Any) -> Header:
        """The header of an honest call, less what the attack changes."""
        fields: dict[str, Any] = {
            "to": view.node,
            "to_instance": view.offer.instance,
            "capability": capability,
            "deadline": 10_000,
            "idempotency_key": body.get("input", {}).get("client_id", ""),
        }
        return msgspec.structs.replace(self.peer.sender.header("call", ids.new_ulid(), **fields), **changes)

    def inner(self, header: Header, body: dict[str, Any], *, signed: bool) -> bytes:
        """The frame before it is boxed."""
        data = msgspec.json.encode(body)
        return frames.signed(header, data, self.peer.identity) if signed else frames.plain(header, data)

    def boxed(self, inner: bytes, view: OfferView) -> bytes:
        """The frame as it goes to the process in `view`."""
        return frames.box(inner, self.peer.sender.keys.to(view.node))

    def subject(self, view: OfferView, capability: str) -> str:
        """Where an honest call of `capability` goes."""
        return subjects.call(self.peer.node_id, view.node, view.offer.instance, parse_capability(capability))

    async def strike(self, subject: str, data: bytes, call_id: str, view: OfferView) -> str:
        """Sends `data` and says what came of it: a wire code, `ok`, or `no answer`.

        Honest calls follow on the same connection to the same process, the last one an effect as slow as any:
        once they are answered, an answer to the attack would have been there, too.
        """
        answers = Answers()
        self.peer.replies.expect(call_id, answers)
        try:
            await self.peer.link.publish(subject, data)
            await self._answered(view, LIST, LIST_BODY)
            await self._answered(view, POST, post_body("An honest post"))
        finally:
            self.peer.replies.forget(call_id)
        return outcome(answers.frames)

    async def _answered(self, view: OfferView, capability: str, body: dict[str, Any]) -> None:
        """Sends an honest call, again where other attacks take the places that are for this member."""

        async def done() -> bool:
            code = await self.call(view, capability, body)
            assert code in ("ok", "capacity_exceeded"), code
            return code == "ok"

        await wait_for(done, what=f"an honest call of {capability}")

    async def call(self, view: OfferView, capability: str, body: dict[str, Any], **changes: Any) -> str:
        """Sends one crafted call to the process in `view`, signed as its contract wants unless told."""
        return outcome(await self._crafted(view, capability, body, **changes))

    async def refusal(
        self, view: OfferView, capability: str, body: dict[str, Any], **changes: Any
    ) -> HearthNetError:
        """The whole error with which such a call is refused."""
        (answer,) = await self._crafted(view, capability, body, **changes)
        try:
            parse_body(answer)
        except HearthNetError as error:
            return error
        raise AssertionError(f"{capability} was not refused")

    async def _crafted(
        self, view: OfferView, capability: str, body: dict[str, Any], **changes: Any
    ) -> list[Frame]:
        signed = changes.pop("signed", capability == POST)
        header = self.header(view, capability, body, **changes)
        data = self.boxed(self.inner(header, body, signed=signed), view)
        return await self._answers(self.subject(view, capability), data, header.id)

    async def posted(self, title: str) -> int:
        """How many posts with this title are in the market."""
        listed = await self.bus.call(LIST, {"params": {}, "input": {"limit": 500}})
        return [post["title"] for post in listed.output["posts"]].count(title)

    async def deliver(self, subject: str, data: bytes, call_id: str) -> str:
        """Sends what has to be answered, and says with what code."""
        return outcome(await self._answers(subject, data, call_id))

    async def _answers(self, subject: str, data: bytes, call_id: str) -> list[Frame]:
        answers = Answers()
        self.peer.replies.expect(call_id, answers)
        try:
            await self.peer.link.publish(subject, data)
            await asyncio.wait_for(answers.arrived.wait(), ANSWER_SECONDS)
        finally:
            self.peer.replies.forget(call_id)
        return answers.frames


def outcome(answers: list[Frame]) -> str:
    """The code of what was answered."""
    if not answers:
        return NO_ANSWER
    try:
        parse_body(answers[0])
    except HearthNetError as error:
        return error.code
    return "ok"


class Raw:
    """A bare connection to the server under one login: what the server itself lets pass."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: list[str] = []
        self.heard: list[Msg] = []

    @classmethod
    async def connect(cls, url: str, login: Login) -> Raw:
        """Connects as `login`; the server's complaints are kept."""
        raw = cls()

        async def complain(error: Exception) -> None:
            raw.refusals.append(str(error).lower())

        try:
            await raw.client.connect(
                url,
                nkeys_seed_str=login.seed.decode(),
                error_cb=complain,
                allow_reconnect=False,
                connect_timeout=int(ANSWER_SECONDS),
            )
        except BaseException:
            await raw.close()
            raise
        return raw

    async def subscribe(self, subject: str) -> None:
        """Listens, if the server allows it."""

        async def hear(message: Msg) -> None:
            self.heard.append(message)

        await self.client.subscribe(subject, cb=hear)
        await self.settle()

    async def publish(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        """Sends, if the server allows it."""
        await self.client.publish(subject, data, reply=reply)
        await self.settle()

    async def settle(self) -> None:
        """After two round trips everything the server had to say about it is here."""
        await self.client.flush()
        await self.client.flush()

    def refused(self, subject: str) -> bool:
        """Whether the server refused something on `subject`."""
        return any("permissions violation" in line and subject.lower() in line for line in self.refusals)

    async def close(self) -> None:
        """Leaves."""
        await self.client.close()
