"""What waits at another computer of the owner is seen at the page, taken over and decided there."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from hearthnet.agent.devices import run_copy
from hearthnet.agent.devices.copy_store import CopyStore
from hearthnet.bus.session import keyring
from hearthnet.core.times import now_ms
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.keys import Identity
from tests.agent.keeping import QUESTION, WANTS, Node
from tests.gateway.page.street import Street, visit
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def laptop_of_owner(street: Street) -> Identity:
    """The other member's node is a device of the owner's person now."""
    assert street.gateway is not None
    membership, laptop = (
        street.gateway.bus.peer.membership,
        keyring.load_identity(street.mesh.guest.device_key),
    )
    recovery, key = Identity.generate(), Identity.generate()
    begun = CommunityAuthor(membership.roster, street.mesh.identity).key_person(recovery, key, now_ms())
    await membership.add((begun,))
    for device, name in ((street.mesh.identity, "desk"), (laptop, "laptop")):
        author = CommunityAuthor(membership.roster, device)
        await membership.add((author.add_node(recovery.node_id, key, name, now_ms()),))
    return laptop


@pytest.mark.req("PERSON-55")
async def test_a_run_of_another_computer_is_taken_over_at_the_page(street: Street) -> None:
    laptop = await laptop_of_owner(street)
    node = Node(MemoryRuns(), WANTS)
    node.peer.identity = laptop
    run = (await node.executor().run_chat_with_tools(QUESTION))["run"]
    saved = node.saved()
    copy = await run_copy.copy_of(saved, (await saved.load(run)).record)
    for call in copy.record.state.calls:
        call.provider = laptop.node_id  # its own market, which is away as it is
    CopyStore(street.mesh.home, street.mesh.identity).put(copy)
    street.model.turns["Lend it."] = [Say("I write."), Say("It is posted.")]
    async with visit(street, principal="owner") as there, visit(street) as other:
        # The roster that the test publishes has the owner's person, whose key is not in this home.
        there.allowed.append("status of 404")
        card = there.page.locator(".runs .card")
        await there.page.click("#nav-waiting")
        await expect(card).to_contain_text("This waits at your computer laptop.")
        await other.page.click("#nav-waiting")
        await expect(other.page.locator(".runs .none")).to_be_visible()
        await card.get_by_role("button", name="Take it over here").click()
        await expect(there.page.locator("dialog")).to_contain_text("Water filter")
        await there.choose("approve")
        await there.page.wait_for_selector(".answer[data-state=done], .answer [data-state=done]")
    assert [one["title"] for one in await street.effects()].count("Water filter") == 1
