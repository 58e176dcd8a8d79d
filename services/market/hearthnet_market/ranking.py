"""Which posts share words with a query, best first, in a time that does not grow with the market.

BM25 over all posts that have a word costs as much as there are such posts, and a word that many have says
little about any of them. So posts are ranked by the rare words of the query; where these find too few, the
newest that have all of its words follow, then the newest that have some. In a market of up to `COMMON` posts
every word is rare.
"""

from __future__ import annotations

import sqlite3
from typing import Final

COMMON: Final = 2000
"""A word that more posts have than this is common."""
_MOST_RANKED: Final = 2000
_NEWEST: Final = 500
_MOST_COMMON: Final = 4
_ENOUGH: Final = 50
"""As many as may be asked for."""
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM post_text WHERE post_text MATCH ? LIMIT ?)"
_RANK: Final = """
    SELECT rowid, -bm25(post_text, 3.0, 1.0, 2.0) FROM post_text WHERE post_text MATCH ?
    ORDER BY rowid DESC LIMIT ?"""


def ranked(database: sqlite3.Connection, words: list[str]) -> list[tuple[int, float]]:
    """Numbers of posts and their scores (higher is better), best first, newer ones first among equals."""
    quoted = [f'"{word}"' for word in words]
    if not quoted:
        return []
    counts = {word: _count(database, word) for word in quoted}
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


def _count(database: sqlite3.Connection, word: str) -> int:
    return int(database.execute(_COUNT, (word, COMMON + 1)).fetchone()[0])
