"""SQL queries of `market.list` and `market.search`.

Tags are searched as words in the word index, newest posts first, and then compared with the post's own tags.
This needs no table of tags, which would cost more to maintain than the rest of a post.

Posts are ranked by the words of a query in a time independent of the market's size. BM25 over all posts that
contain a word takes time proportional to their number, and a common word says little about any of them. So
posts are ranked by the rare words of the query. If these match too few posts, the newest posts with all of
its common words follow, then the newest with some. In a market of up to `COMMON` posts every word is rare.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_market.distances import SQL
from hearthnet_market.schemas import ListInput

_WORD = re.compile(r"\w+")
_HAS_TAG = "EXISTS (SELECT 1 FROM json_each(post.tags) WHERE value = ?)"
COMMON: Final = 2000
"""Number of posts above which a word is common."""
_MOST_WORDS: Final = 32
_MOST_RANKED: Final = 2000
_NEWEST: Final = 500
_MOST_COMMON: Final = 4
_ENOUGH: Final = 50
"""The largest number of posts that a search may request."""
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM post_text WHERE post_text MATCH ? LIMIT ?)"
_RANK: Final = """
    SELECT rowid, -bm25(post_text, 3.0, 1.0, 2.0) FROM post_text WHERE post_text MATCH ?
    ORDER BY rowid DESC LIMIT ?"""


def listing(
    wanted: ListInput, now_ms: int, columns: str, without: Collection[str] = ()
) -> tuple[str, list[int | float | str]]:
    """Return the statement, which takes the limit last, and its other values; no posts of authors `without`.

    The values are in the order of their placeholders.

    Raises:
        HearthNetError: `bad_request` for `within_km` without `near`.
    """
    source = "post"
    where = ["ended_lamport IS NULL", f"hidden_lamport IS {'NOT ' * wanted.hidden}NULL", "expires_at > ?"]
    given: list[int | float | str] = [now_ms]
    if without:
        where.append("author NOT IN (SELECT value FROM json_each(?))")
        given.append(msgspec.json.encode(list(without)).decode())
    if wanted.since_lamport:
        where.append("lamport > ?")
        given.append(wanted.since_lamport)
    if wanted.category is not None:
        where.append("category = ?")
        given.append(wanted.category)
    if wanted.within_km is not None:
        if wanted.near is None:
            raise HearthNetError(
                "bad_request", "within_km is measured from near", details={"path": "/input/near"}
            )
        where.append(f"{SQL} <= ?")
        given += [wanted.near.lat, wanted.near.lng, wanted.within_km]
    for tag in wanted.tags:
        where.append(_HAS_TAG)
        given.append(tag)
    indexed = _indexed(wanted.tags)
    order = "post.lamport" if wanted.since_lamport else "post.id DESC"
    if indexed and wanted.since_lamport:
        where.append("post.id IN (SELECT rowid FROM post_text WHERE post_text MATCH ?)")
        given.append(indexed)
    elif indexed:
        source, order = "post_text CROSS JOIN post ON post.id = post_text.rowid", "post_text.rowid DESC"
        where.append("post_text MATCH ?")
        given.append(indexed)
    if wanted.near and not wanted.since_lamport:
        # The nearest first, then those that have no place.
        order = f"post.location IS NULL, {SQL}, post.id DESC"
        given += [wanted.near.lat, wanted.near.lng]
    named = ", ".join(f"post.{name.strip()}" for name in columns.split(","))
    sql = f"SELECT {named} FROM {source} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    return sql, given


def _indexed(tags: tuple[str, ...]) -> str:
    """Return the query of the word index for `tags`, empty if no tag has a letter or digit."""
    phrases = [" ".join(_WORD.findall(tag)) for tag in tags]
    joint = " AND ".join(f'"{phrase}"' for phrase in phrases if phrase)
    return f"tags : ({joint})" if joint else ""


def ranked(database: sqlite3.Connection, query: str) -> list[tuple[int, float]]:
    """Return numbers of posts with their scores, best first; equal scores newest first.

    A higher score is better.
    """
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:_MOST_WORDS]
    counts = {
        f'"{word}"': database.execute(_COUNT, (f'"{word}"', COMMON + 1)).fetchone()[0] for word in words
    }
    rare = [word for word, count in counts.items() if 0 < count <= COMMON]
    scores: dict[int, float] = {}
    if rare:
        scores = dict(database.execute(_RANK, (" OR ".join(rare), _MOST_RANKED)))
    common = [word for word, count in counts.items() if count > COMMON][:_MOST_COMMON]
    if common and len(scores) < _ENOUGH:
        for joint in dict.fromkeys((" AND ".join(common), " OR ".join(common))):
            for post, score in database.execute(_RANK, (joint, _NEWEST)):
                scores.setdefault(post, score)
    return sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True)
