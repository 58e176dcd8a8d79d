"""A member that was restored from a backup: its events wait for a neighbour, its old keys are not known."""

from __future__ import annotations

import pytest

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.restore_mark import RestoreMark, read_mark, write_mark
from hearthnet.core.times import now_ms
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, ISSUE, House, living

pytestmark = pytest.mark.asyncio


def mark(mesh: Mesh) -> None:
    """Marks the home as restored a moment ago, from a backup of an hour before."""
    now = now_ms()
    write_mark(mesh.home, RestoreMark(ids.new_ulid(now - 3_600_000), now - 3_600_000, now))


async def refused(house: House, capability: str, **given: object) -> HearthNetError:
    """The error of a call at the own node."""
    with pytest.raises(HearthNetError) as raised:
        await house.do(capability, **given)
    return raised.value


@pytest.mark.req("BACKUP-9")
async def test_keys_of_before_a_restore_are_unknown(street: Mesh) -> None:
    old = ids.new_ulid()
    mark(street)
    async with living(street, street.home) as house:
        given = {
            "subject": keyring.load_identity(street.others[0].device_key).node_id,
            "scope": {"capabilities": ["community.sync"]},
        }
        error = await refused(house, ISSUE, client_id=old, **given)
        assert error.code == "outcome_unknown"
        assert (await house.do(ISSUE, client_id=ids.new_ulid(now_ms() + 10), **given))["token"]


@pytest.mark.req("BACKUP-9")
async def test_own_events_wait_for_another_member(street: Mesh) -> None:
    mark(street)
    carol_home, _ = street.others
    async with living(street, street.home) as founder:
        error = await refused(founder, INVITE, name="Dora", client_id=ids.new_ulid())
        assert (error.code, error.rule) == ("partition", "provider_starting")
        assert "hearthnet backup alone" in error.message
        async with living(street, carol_home) as carol:

            def heard() -> bool:
                found = read_mark(street.home)
                return found is not None and found.may_write_events

            await wait_for(heard, 60, "word from another member")
            found = read_mark(street.home)
            assert found is not None
            assert found.heard_from == carol.node_id
            assert founder.auth._membership.roster.version == carol.auth._membership.roster.version
            await founder.do(INVITE, name="Dora", client_id=ids.new_ulid())
