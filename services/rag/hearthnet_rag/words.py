"""Words as the index knows them: folded, without accents, reduced to their stem.

The index and the query go through the same functions, so they cannot drift apart; what reaches SQLite is
letters and digits only, so no text of a document or a query can be FTS syntax. Stems are English for now,
which does no harm to other languages, since both sides are treated alike.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from typing import Any, Final

_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'"})

_STOP_WORDS: Final = """
a about after again all almost also although always am an and another any anybody anyone anything are
aren't as at be because been before being best better both but by came can can't cannot come comes could
couldn't did didn't do does doesn't doing don't done down during each either else enough even ever every
everybody everyone everything few for from get gets getting give given go goes going gone good got had
happen happens has have haven't having he he's her here hers him his how how's however i i'm i've if in
instead into is isn't it it's its itself just keep kept know least less let let's like long lot lots made
make makes making many may maybe me mean might more most much must my myself need needs neither never new
no nobody nor not nothing now of off often ok okay on once one ones only or other others our ours out over
own people per perhaps person please put quite rather really s same say says she should shouldn't since so
some somebody someone something sometimes somewhere soon still such sure take takes tell than that that's
the their them then there there's these they thing things think this those though through to together too
towards try under until up upon us use used using usually very want wants was wasn't way we we're were
weren't what what's when where whether which while who who's whole whom whose why will with without won't
would wouldn't yes yet you you're your yours yourself
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""English words that tell nothing of what a question is about."""


def words(text: str) -> list[str]:
    """The words of `text` in order: case-folded, no accents, no punctuation but inner apostrophes."""
    folded = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES).casefold())
    return _WORD.findall(_NOT_ASCII.sub(_unless_accent, folded))


def analysed(text: str) -> str:
    """`text` as the index stores it: stems with one blank between them."""
    return " ".join(_stem(word) for word in words(text))


def query_stems(query: str) -> list[str]:
    """The distinct stems to look for, in order, without stop words; with them where nothing else is left."""
    found = words(query)
    telling = [word for word in found if word not in STOP_WORDS]
    return list(dict.fromkeys(_stem(word) for word in telling or found))


def _unless_accent(found: re.Match[str]) -> str:
    return "" if unicodedata.combining(found[0]) else found[0]


@functools.lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    with _lock:
        stem: str = _stemmer().stemWord(word)
    return stem.replace("'", "")


@functools.cache
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")


_lock: Final = threading.Lock()  # a stemmer keeps the word it works on in itself
