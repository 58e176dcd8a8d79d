"""Conversations are the person's and not the browser's: the same at every page, and nobody else's."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect

from hearthnet.core import ids
from hearthnet.gateway.auth.client_store import api_key
from hearthnet.trust.keys import Identity
from tests.gateway.page.street import Street, Visit, visit
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD = """async () => {
    const answer = {
        state: "done", segments: [{ iteration: 1, text: "Long ago.", calls: [] }], calls: new Map(),
        notices: [], error: null, done: {}, run: "", happened: null,
    }
    const id = "01JZZZZZZZZZZZZZZZZZZZZZ70"
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("hearthnet", 1)
        opening.onsuccess = () => resolve(opening.result)
    })
    const stores = db.transaction(["conversations", "answers"], "readwrite")
    stores.objectStore("conversations").put({ id, title: "An old one", at: 5 })
    const record = { id: "a", conversation: id, question: "When?", at: 5, answer, kept: {} }
    stores.objectStore("answers").put(record)
    await new Promise((resolve) => { stores.oncomplete = resolve })
}"""


def names(page: Page) -> Any:
    """The conversations in the list."""
    return page.locator(".names .name")


async def look(there: Visit) -> None:
    """Somebody is back at this window, which looks at once for what is new."""
    await there.page.evaluate("dispatchEvent(new Event('online'))")


async def has(there: Visit, *titles: str) -> None:
    """Waits until the list has exactly these."""
    await look(there)
    await expect(names(there.page)).to_have_text(list(titles))


@pytest.mark.req("CONV-1", "CONV-2", "CONV-4")
async def test_two_pages_of_a_person_have_the_same_conversations(street: Street) -> None:
    street.model.turns |= {"Where is the well?": [Say("Behind it.")], "How deep?": [Say("Nine metres.")]}
    async with visit(street, principal="ada") as one, visit(street, principal="ada") as other:
        for there in (one, other):  # who changes what the other one has just changed takes that over first
            there.allowed.append("status of 400")
            there.allowed.append("status of 404")  # and who reads what the other one has just deleted
        await one.ask("Where is the well?")
        await one.answered("Behind it.")
        await has(other, "Where is the well?")
        await names(other.page).click()
        await other.answered("Behind it.")
        await other.ask("How deep?")
        await other.answered("Nine metres.")
        said = [message["content"].strip() for message in street.model.requests[-1]["messages"]]
        assert said == ["Where is the well?", "Behind it.", "How deep?"]
        await look(one)
        await expect(one.page.locator(".question")).to_have_text(["Where is the well?", "How deep?"])
        await one.answered("Nine metres.")
        await one.page.get_by_role("button", name="Delete this conversation: Where is the well?").click()
        await has(other)
        await expect(other.page.locator(".answer")).to_have_count(0)
        await other.page.reload()
        await other.page.wait_for_selector("#question")
        await has(other)


@pytest.mark.req("CONV-8")
async def test_what_a_browser_has_of_before_is_taken_over_once(street: Street) -> None:
    async with visit(street, principal="bob") as one, visit(street, principal="bob") as other:
        await one.page.evaluate(OLD)
        await one.page.reload()
        await has(other, "An old one")
        await names(other.page).click()
        await other.answered("Long ago.")
        await other.page.get_by_role("button", name="Delete this conversation: An old one").click()
        await has(one)
        await one.page.reload()
        await has(one)
        await has(other)


@pytest.mark.req("CONV-3", "ATTACK-92")
async def test_nobody_else_sees_a_conversation(street: Street) -> None:
    street.model.turns |= {"My secret?": [Say("It is safe.")]}
    assert street.gateway is not None
    async with visit(street, principal="cleo") as there, visit(street, principal="dan") as dan:
        await there.ask("My secret?")
        await there.answered("It is safe.")
        book = street.gateway.clients.book
        async with visit(street, principal="cleo") as second:
            await has(second, "My secret?")
            listed = await second.page.evaluate("fetch('/v1/conversations').then((answer) => answer.json())")
        (line,) = listed["conversations"]
        await has(dan)
        programs = [api_key(*book.add("program", principal)) for principal in ("cleo", "dan", "owner")]
        signing = Identity.generate().node_id
        programs.append(api_key(*book.add("program", "cleo", key=signing)))
        change = {"base": line["revision"], "title": "x", "at": 1, "content": {}}
        async with httpx2.AsyncClient(base_url=street.url) as http:
            for secret in programs:
                key = {"Authorization": f"Bearer {secret}"}
                for method, path, body in (
                    ("GET", "", None),
                    ("GET", f"/{line['id']}", None),
                    ("POST", f"/{line['id']}", change),
                    ("DELETE", f"/{line['id']}", None),
                ):
                    answer = await http.request(method, f"/v1/conversations{path}", headers=key, json=body)
                    assert answer.status_code == 404, (method, answer.text)
        await has(there, "My secret?")


@pytest.mark.req("CONV-3", "CONV-5", "ATTACK-92")
async def test_pages_of_others_and_bad_changes_are_refused(street: Street) -> None:
    assert street.gateway is not None
    book, cookie = street.gateway.clients.book, street.gateway.clients.cookie
    mine, other = (
        book.add("page", name, key=Identity.generate().node_id, made_by="link") for name in ("eve", "fay")
    )
    name, own = ids.new_ulid(), {"base": "", "title": "Mine", "at": 1, "content": {"answers": []}}
    pages = [{cookie: f"{entry.id}_{secret}"} for entry, secret in (mine, other)]
    here = {"Origin": street.url}
    async with (
        httpx2.AsyncClient(base_url=street.url, cookies=pages[0], headers=here) as eve,
        httpx2.AsyncClient(base_url=street.url, cookies=pages[1], headers=here) as fay,
    ):
        path = f"/v1/conversations/{name}"
        made = await eve.post(path, json=own)
        assert made.status_code == 200, made.text
        assert (await eve.get(path)).json()["title"] == "Mine"
        assert (await fay.get(path)).status_code == 404
        assert (await fay.delete(path)).status_code == 404
        assert (await fay.get("/v1/conversations")).json() == {"conversations": []}
        conflict = (await eve.post(path, json=own)).json()
        assert conflict["details"] == {"rule": "revision", "revision": made.json()["revision"]}
        for wrong in ({"base": ""}, {**own, "more": 1}, {**own, "title": "x" * 201}):
            assert (await eve.post(path, json=wrong)).status_code == 400
        assert (await eve.post("/v1/conversations/mine", json=own)).status_code == 400
        assert (await eve.delete(path)).json() == {"deleted": name}
        assert (await eve.get(path)).status_code == 404
        assert (await eve.get("/v1/conversations")).json() == {
            "conversations": [{"id": name, "deleted": True}]
        }
