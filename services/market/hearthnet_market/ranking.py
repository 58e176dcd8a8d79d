"""Ranking of posts by the words of a query, in a time independent of the market's size.

BM25 over all posts that contain a word takes time proportional to their number, and a common word says little
about any of them. So posts are ranked by the rare words of the query. If these match too few posts, the
newest posts with all of its common words follow, then the newest with some. In a market of up to `COMMON`
posts every word is rare.
"""

from __future__ import annotations

import sqlite3
from typing import Final

COMMON: Final = 2000
"""Number of posts above which a word is common."""
_MOST_RANKED: Final = 2000
_NEWEST: Final = 500
_MOST_COMMON: Final = 4
_ENOUGH: Final = 50
"""The largest number of posts that a search may request."""
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM post_text WHERE post_text MATCH ? LIMIT ?)"
_RANK: Final = """
    SELECT rowid, -bm25(post_text, 3.0, 1.0, 2.0) FROM post_text WHERE post_text MATCH ?
    ORDER BY rowid DESC LIMIT ?"""


def ranked(database: sqlite3.Connection, words: list[str]) -> list[tuple[int, float]]:
    """Return numbers of posts with their scores, best first; equal scores newest first.

    A higher score is better.
    """
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
