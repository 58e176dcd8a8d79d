"""Rate limits for other nodes, per capability and in total.

    soft   calls per second in the long run, and as many at once; a further one is refused with the time
           after which to retry, which grows with each refusal before it
    hard   calls per second including refused ones; beyond it a node is refused for 10 s

Calls of this node are not counted. Refusals are answers, within a ration (service/hosting/host.py). Pure;
three numbers for each node and capability, no list of calls.

See: docs/protocol/admission.md#rate-limits, docs/decisions/0012.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hearthnet.core.config import LimitsConfig

AWAY_MS: Final = 10_000
OTHERS: Final = "what is not offered"
_SECOND_MS: Final = 1_000
_SPREAD_MS: Final = 2_000
"""Maximum time over which the retries of refused calls are spread."""
_SWEEP_MS: Final = 10_000
_MOST_NODES: Final = 1_024
_ALL: Final = ""


class RateLimited(NamedTuple):
    """The wait in ms, and the exceeded limit of `capability`, or of all if that is ""."""

    wait_ms: int
    limit: int
    capability: str


class _Meter:
    """The times until which accepted calls use up the soft limit, and refused ones the rest."""

    __slots__ = ("owed", "refused", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.refused = 0.0
        self.owed = 0


class _Limit:
    """The cost of one call in ms of a second: of the soft limit, or of the part above it.

    Zero for a limit of 0, which means none.
    """

    def __init__(self, soft: int, hard: int) -> None:
        self.soft = soft
        self.each = _SECOND_MS / soft if soft else 0.0
        self.each_refused = _SECOND_MS / max(1, hard - soft) if hard else 0.0

    def refuse(self, meter: _Meter, now: float) -> int:
        """Return the milliseconds to wait for a call that is refused at `now`."""
        meter.owed = meter.owed + 1 if meter.used > now else 1
        meter.refused = max(meter.refused, now) + self.each_refused
        if meter.refused > now + _SECOND_MS:
            meter.used = max(meter.used, now + AWAY_MS + _SECOND_MS)
        wait = meter.used - now - _SECOND_MS + min(self.each * meter.owed, _SPREAD_MS)
        return int(wait) + 1


class PeerRates:
    """The meters of all other nodes in one process; times are ms of a monotonic clock."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._one = _Limit(limits.capability_soft, limits.capability_hard)
        self._all = _Limit(limits.total_soft, limits.total_hard)
        self._each, self._each_of_all = self._one.each, self._all.each
        self._nodes: dict[str, dict[str, _Meter]] = {}
        self._sweep_at = 0.0

    def charge(self, node: str, capability: str, now_ms: int) -> RateLimited | None:
        """Count one more call of `capability` by `node`; return the refusal if over a limit."""
        meters = self._nodes.get(node)
        if meters is None:
            meters = self._new(node, now_ms)
        meter = meters.get(capability)
        if meter is None:
            meter = meters[capability] = _Meter()
        total, limit = meters[_ALL], now_ms + _SECOND_MS
        used, used_of_all = meter.used, total.used
        used = (used if used > now_ms else now_ms) + self._each
        used_of_all = (used_of_all if used_of_all > now_ms else now_ms) + self._each_of_all
        if used > limit:
            return RateLimited(self._one.refuse(meter, now_ms), self._one.soft, capability)
        if used_of_all > limit:
            return RateLimited(self._all.refuse(total, now_ms), self._all.soft, _ALL)
        meter.used, total.used = used, used_of_all
        return None

    def _new(self, node: str, now_ms: int) -> dict[str, _Meter]:
        """Add a node; of very many nodes, those with their full budget are forgotten first."""
        if len(self._nodes) >= _MOST_NODES and now_ms >= self._sweep_at:
            self._sweep_at = now_ms + _SWEEP_MS
            self._nodes = {
                name: meters
                for name, meters in self._nodes.items()
                if any(max(meter.used, meter.refused) > now_ms for meter in meters.values())
            }
        meters = self._nodes[node] = {_ALL: _Meter()}
        return meters
