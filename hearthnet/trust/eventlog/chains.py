"""The chains of one topic: which entries are held, where they end, and where they fork.

One chain per author, as in the roster (trust/community/history.py), which derives a whole from its events
and is immutable. A topic grows by thousands of entries that do not depend on each other, so these chains are
extended in place, and of each entry only its link is in memory.

See: docs/protocol/log.md#chains, docs/decisions/0211.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.eventlog.chain_ends import Heads, Place, read_head
from hearthnet.trust.eventlog.entries import LogEntry

MAX_DAY_BYTES: Final = 4_000_000
"""Maximum of bytes in the bodies of one author in one topic on one day: some 1,700 posts."""
MAX_BRANCHES: Final = 4
"""Maximum of ends of one author's chain. Two devices with one key make two; more are made on purpose."""
DAY_MS: Final = 24 * 60 * 60 * 1000


class Link(NamedTuple):
    """The members of an entry that are kept in memory."""

    author: str
    sequence: int
    previous: str
    time: int
    size: int


class Chains:
    """The links of all entries of one topic that are held."""

    def __init__(self) -> None:
        self._authors: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._of: dict[str, list[str]] = {}
        """The hashes of each author's entries, none before the one that it follows."""
        self._tips: dict[str, dict[str, int]] = {}
        self._days: Counter[tuple[str, int]] = Counter()
        self.forks: dict[str, tuple[int, str, str]] = {}
        """The authors of which two entries follow one: the sequence and the hashes of the first such pair."""
        self.newest = 0
        """The latest time of an entry; 0 without one."""

    def __len__(self) -> int:
        return len(self._links)

    def holds(self, hash_: str) -> bool:
        """Return whether the entry with that hash is held."""
        return hash_ in self._links

    def size(self, hash_: str) -> int:
        """Return the bytes in the body of an entry that is held."""
        return self._links[hash_].size

    def count(self, is_counted: Callable[[str], bool]) -> int:
        """Return the number of entries of those authors for which `is_counted` is true."""
        return sum(len(hashes) for author, hashes in self._of.items() if is_counted(author))

    def is_next(self, entry: LogEntry) -> bool:
        """Return whether the entry that `entry` follows is held, or it is a first one."""
        return not entry.previous or entry.previous in self._links

    def check(self, entry: LogEntry) -> None:
        """Check the place of an entry that is next and not held.

        Raises:
            HearthNetError: `bad_request` if it does not follow the entry that it names; `rate_limited` if its
                author has written `MAX_DAY_BYTES` on that day, or has more than `MAX_BRANCHES` ends.
        """
        before = self._links.get(entry.previous)
        if before is not None and (
            (before.author, before.sequence + 1) != (entry.author, entry.sequence) or entry.time < before.time
        ):
            raise HearthNetError("bad_request", "it does not follow the entry that it names")
        if self.left(entry.author, entry.time) < entry.size:
            raise HearthNetError("rate_limited", "its author has written all that is kept of one day")
        tips = self._tips.get(entry.author, {})
        if tips and entry.previous not in tips and len(tips) >= MAX_BRANCHES:
            raise HearthNetError("rate_limited", "the chain of its author has too many ends")

    def left(self, author: str, time: int) -> int:
        """Return the bytes that `author` may still write on the day of `time`."""
        return MAX_DAY_BYTES - self._days[author, time // DAY_MS]

    def add(self, entry: LogEntry) -> None:
        """Add an entry whose place was checked."""
        author, hash_ = self._authors.setdefault(entry.author, entry.author), entry.hash
        before = self._of.setdefault(author, [])
        # One text object for what is equal: a third of the memory of an entry.
        previous = before[-1] if before and before[-1] == entry.previous else entry.previous
        tips = self._tips.setdefault(author, {})
        if tips.pop(entry.previous, None) is None and tips and author not in self.forks:
            other = next(one for one in before if self._links[one].previous == entry.previous)
            self.forks[author] = (entry.sequence, other, hash_)
        tips[hash_] = entry.sequence
        self._links[hash_] = Link(author, entry.sequence, previous, entry.time, entry.size)
        before.append(hash_)
        self._days[author, entry.time // DAY_MS] += entry.size
        self.newest = max(self.newest, entry.time)

    def next(self, author: str) -> tuple[int, str, int]:
        """Return sequence and previous of the next entry of `author`, and the time that it must have."""
        tips = self._tips.get(author)
        if not tips:
            return 1, "", 0
        last = max(tips, key=lambda hash_: (tips[hash_], hash_))
        return tips[last] + 1, last, self._links[last].time

    def heads(self, is_told: Callable[[str], bool]) -> Heads:
        """Return the ends of the chains of those authors for which `is_told` is true."""
        return {
            author: sorted(f"{sequence}:{hash_}" for hash_, sequence in tips.items())
            for author, tips in sorted(self._tips.items())
            if is_told(author)
        }

    def lacks(self, heads: Mapping[str, Sequence[str]]) -> bool:
        """Return whether `heads` name an entry that is not held.

        Raises:
            HearthNetError: `bad_request` if `heads` are malformed.
        """
        return any(read_head(text)[1] not in self._links for texts in heads.values() for text in texts)

    def missing(
        self,
        heads: Mapping[str, Sequence[str]],
        is_told: Callable[[str], bool],
        limit: int,
        after: Place | None = None,
    ) -> tuple[list[str], int]:
        """Return the hashes of the entries that a node with `heads` may lack, by time, and their number.

        At most `limit` hashes are returned, the earliest ones; with `after`, of those behind that place, at
        which the page before ended that was asked for with the same `heads`. An author whose chain is longer
        there, with ends unknown here, is left out: after its entries are fetched from that node, the next
        comparison shows whether it lacks any held here.

        The work grows with the number of authors and with `limit`, not with that of the entries: a newcomer
        asks for one page after the other.

        Raises:
            HearthNetError: `bad_request` if `heads` are malformed.
        """
        found, total = list[str](), 0
        # The place of the next entry of each author, the author's hashes, and its index in them.
        ahead: list[tuple[Place, list[str], int]] = []
        for author in filter(is_told, self._of):
            hashes, index = self._lacking(author, [read_head(text) for text in heads.get(author, ())])
            if after is not None:
                index = bisect_right(hashes, after, lo=index, key=self._place)
            if index < len(hashes):
                total += len(hashes) - index
                ahead.append((self._place(hashes[index]), hashes, index))
        heapq.heapify(ahead)
        while ahead and len(found) < limit:
            _, hashes, index = ahead[0]
            found.append(hashes[index])
            if index + 1 < len(hashes):
                heapq.heapreplace(ahead, (self._place(hashes[index + 1]), hashes, index + 1))
            else:
                heapq.heappop(ahead)
        return found, total

    def _place(self, hash_: str) -> Place:
        link = self._links[hash_]
        return link.time, link.sequence, hash_

    def _lacking(self, author: str, ends: Sequence[tuple[int, str]]) -> tuple[list[str], int]:
        """Return hashes of `author` by time, and the index of the first that a node with `ends` may lack."""
        hashes = self._of[author]
        longest = max(self._tips[author].values())
        known = [hash_ for _, hash_ in ends if self._is_of(author, hash_)]
        if not known and any(sequence > longest for sequence, _ in ends):
            return [], 0
        if author not in self.forks:  # one chain: what follows the end that is known
            have = max((self._links[hash_].sequence for hash_ in known), default=0)
            return hashes, have
        below = self._below(author, known)
        found = [hash_ for hash_ in hashes if hash_ not in below]
        found.sort(key=self._place)
        return found, 0

    def _is_of(self, author: str, hash_: str) -> bool:
        link = self._links.get(hash_)
        return link is not None and link.author == author

    def _below(self, author: str, hashes: Iterable[str]) -> set[str]:
        """Return the hashes of the entries of `author` up to and including `hashes`."""
        found: set[str] = set()
        for hash_ in hashes:
            while hash_ not in found and hash_ in self._links and self._links[hash_].author == author:
                found.add(hash_)
                hash_ = self._links[hash_].previous
        return found
