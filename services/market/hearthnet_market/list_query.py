"""SQL statement of `market.list`. Pure.

Tags are searched as words in the word index, newest posts first, and then compared with the post's own tags.
This needs no table of tags, which would cost more to maintain than the rest of a post.
"""

from __future__ import annotations

import re

from hearthnet_market.schemas import ListInput

_WORD = re.compile(r"\w+")
_HAS_TAG = "EXISTS (SELECT 1 FROM json_each(post.tags) WHERE value = ?)"


def listing(wanted: ListInput, now_ms: int, columns: str) -> tuple[str, list[int | str]]:
    """Return the statement, which takes the limit last, and its other values.

    The values are in the order of their placeholders.
    """
    source = "post"
    where = ["ended_lamport IS NULL", "expires_at > ?"]
    given: list[int | str] = [now_ms]
    if wanted.since_lamport:
        where.append("lamport > ?")
        given.append(wanted.since_lamport)
    if wanted.category is not None:
        where.append("category = ?")
        given.append(wanted.category)
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
    named = ", ".join(f"post.{name.strip()}" for name in columns.split(","))
    sql = f"SELECT {named} FROM {source} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    return sql, given


def _indexed(tags: tuple[str, ...]) -> str:
    """Return the query of the word index for `tags`, empty if no tag has a letter or digit."""
    phrases = [" ".join(_WORD.findall(tag)) for tag in tags]
    joint = " AND ".join(f'"{phrase}"' for phrase in phrases if phrase)
    return f"tags : ({joint})" if joint else ""
