"""Further persons of a home as its node runs it: their pages, documents and conversations, over restarts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import HomeStore
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.trust.community.person_statements import CONSENT_PURPOSE
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import opening, parts_of
from tests.helpers.residents import Resident


@dataclass
class Browser:
    """The browser of the person `name`: its key and its cookies."""

    home: Home
    name: str
    key: Identity
    cookies: dict[str, str]

    @classmethod
    def open(cls, home: Path, name: str, link: str) -> Browser:
        """Opens a link, and becomes a device."""
        base, code, node = parts_of(link)
        browser = cls(Home(home), name, Identity.generate(), {})
        with browser.http(base) as http:
            opened = http.post("/v1/session", json=opening(browser.key, code, node, f"{name}'s browser"))
            assert opened.status_code == 201, opened.text
            offer = {**opened.json()["device"]["offer"], "kind": "browser"}
            signature = browser.key.sign(CONSENT_PURPOSE, canonical_json(offer))
            consent = {"signature": ids.PREFIX + ids.b64(signature), "kind": "browser"}
            added = http.post("/v1/device", json=consent)
            assert added.status_code == 201, added.text
            browser.cookies = dict(http.cookies)
        return browser

    def http(self, base: str) -> httpx2.Client:
        """The browser's connection to the gateway at `base`."""
        headers = {"Origin": base}
        return httpx2.Client(
            base_url=base, trust_env=False, timeout=60, headers=headers, cookies=self.cookies
        )

    async def add(self, corpus: str, text: str) -> None:
        """The person stores a document and adds it to a corpus of theirs."""
        async with await Bus.connect(self.home, name="browser") as bus:
            who = self._resident(bus)
            async with await HomeStore.connect(self.home, "browser") as store:
                cid = await store.blobs.put([text.encode()], Hold(by=who.principal))
            await who.call("rag.ingest@1.0", {"corpus": corpus}, doc_cid=cid)

    async def texts(self, corpus: str, query: str) -> list[str]:
        """What a search of the person finds; nothing where there is no such corpus for them."""
        async with await Bus.connect(self.home, name="browser") as bus:
            try:
                found = await self._resident(bus).call("rag.query@1.0", {"corpus": corpus}, query=query)
            except HearthNetError as error:
                return [] if error.code == "not_found" else [error.message]
        return [chunk["text"] for chunk in found["chunks"]]

    def talk(self, base: str, title: str) -> None:
        """The person keeps a conversation."""
        body = {"base": "", "title": title, "at": 1, "content": {}}
        with self.http(base) as http:
            kept = http.post(f"/v1/conversations/{ids.new_ulid()}", json=body)
            assert kept.status_code == 200, kept.text

    def talks(self, base: str) -> str:
        """The list of conversations, as it is sent."""
        with self.http(base) as http:
            return http.get("/v1/conversations").text

    def me(self, base: str) -> dict[str, Any]:
        """Who the gateway says that the browser is."""
        with self.http(base) as http:
            answer = http.get("/v1/me")
            assert answer.status_code == 200, answer.text
            page: dict[str, Any] = answer.json()
            return page

    def _resident(self, bus: Bus) -> Resident:
        return Resident(load_identity(self.home.device_key), bus, self.name, self.key)
