"""The budgets of tokens at this node, charged after admission and before the handler.

    rate_limit_per_minute   a sliding window in memory; each live process of the service has an equal share
    max_calls_total         a JetStream counter: exact for this node, across processes and restarts
    max_effects             a record of the effects' keys, changed by compare-and-set: exact, and a repetition
                            is free

Counts stay if the call fails later, so that nothing is granted twice. Only tokens with such a limit cost time
here.

See: docs/protocol/tokens.md#limits, docs/decisions/0041.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from hearthnet.bus.session.session import Session
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.rate_limits import Rates
from hearthnet.core.restore_mark import RestoreMark, read_mark
from hearthnet.core.times import steady_ms
from hearthnet.service.effects import claims, jetstream_records
from hearthnet.service.effects.jetstream_records import DiskGuard, StoreTimeout
from hearthnet.trust.authorization.token import Claims

_SECONDS: Final = 2.0
_EFFECTS: Final = "effects"


class Budget:
    """The budgets of all tokens, for one process of the node.

    `store` returns the node's store and is called at first use; `instances` returns the number of live
    processes that share the calls of this service, this one included.
    """

    def __init__(
        self, store: Callable[[], Awaitable[Store]], peer: Session, instances: Callable[[], int]
    ) -> None:
        self._store = store
        self._home = peer.home
        self._mark: RestoreMark | Literal[False] | None = False
        """False until it is read."""
        self._room = DiskGuard(peer.home)
        self._instances = instances
        self._rates = Rates()

    async def charge(self, claims: Claims | None, *, effect: bool, idempotency_key: str) -> None:
        """Count one call under the token of `claims`, if there is one and it has limits.

        Raises:
            HearthNetError: `rate_limited` with the time to wait; `token_scope_insufficient` if the token is
                used up, or older than the backup of a node that was restored; `partition` or
                `capacity_exceeded` if the store cannot count.
        """
        if claims is None or not claims.scope.counted:
            return
        scope = claims.scope
        if await asyncio.to_thread(self._is_uncounted, claims):
            raise _restored()
        if scope.rate_limit_per_minute is not None:
            self._check_rate(claims, scope.rate_limit_per_minute)
        if effect and scope.max_effects == 0:
            raise _used_up("effects", 0)
        if scope.max_calls_total is not None:
            await self._count_call(claims, scope.max_calls_total)
        if effect and scope.max_effects is not None:
            await self._count_effect(claims, scope.max_effects, idempotency_key or ids.new_ulid())

    def _is_uncounted(self, claims: Claims) -> bool:
        """Return whether calls under the token may have been counted in what a restore lost."""
        if self._mark is False:
            self._mark = read_mark(self._home)
        limited = claims.scope.max_calls_total is not None or claims.scope.max_effects is not None
        return limited and self._mark is not None and self._mark.may_be_older(claims.iat * 1000)

    def _check_rate(self, claims: Claims, limit: int) -> None:
        share = max(1, limit // max(1, self._instances()))
        wait = self._rates.take((claims.iss, claims.jti), share, steady_ms())
        if wait:
            raise HearthNetError(
                "rate_limited",
                f"the token allows {limit} calls a minute; wait {wait / 1000:.0f} s",
                retry_after_ms=wait,
            )

    async def _count_call(self, claims: Claims, limit: int) -> None:
        # By issuer, too: an issuer chooses the jti, and must not be able to use up another's token.
        subject = f"ct.{ids.token_form(claims.iss)}.{claims.jti}.calls"
        try:
            count = await jetstream_records.increment(await self._store(), subject, 1)
        except StoreTimeout as error:
            raise _uncounted() from error
        if count > limit:
            raise _used_up("calls", limit)

    async def _count_effect(self, token: Claims, limit: int, idempotency_key: str) -> None:
        records = claims.ClaimStore(await self._store(), self._room)
        where = claims.key(_EFFECTS, token.iss, token.jti)
        this = claims.key(_EFFECTS, idempotency_key)
        clock = asyncio.get_running_loop().time
        until = clock() + _SECONDS
        while (left := until - clock()) > 0:
            held = await records.get(where, left)
            known: list[str] = [] if held is None else held.record["effects"]
            if this in known:
                return
            if len(known) >= limit:
                raise _used_up("effects", limit)
            revision = 0 if held is None else held.revision
            if await records.write(where, {"effects": [*known, this]}, revision, left) is not None:
                return
        raise _uncounted()


def _used_up(what: str, limit: int) -> HearthNetError:
    return HearthNetError(
        "token_scope_insufficient",
        f"the token is used up: it allows {limit} {what} at this node; ask its issuer for a new one",
        rule=f"max_{what}",
    )


def _restored() -> HearthNetError:
    return HearthNetError(
        "token_scope_insufficient",
        "this node was restored from a backup since the token was issued, and does not know how often it was "
        "used; ask its issuer for a new one",
        rule="restored",
    )


def _uncounted() -> HearthNetError:
    return Unavailable(
        "the call cannot be counted against its token; try again in a moment", rule="store_silent"
    )
