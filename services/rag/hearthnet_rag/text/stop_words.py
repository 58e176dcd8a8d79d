"""Words that carry no information about the topic of a question, by language.

The English ones were chosen for questions (docs/decisions/0030); those of other languages are the library's.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import Final

_ENGLISH: Final = """
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
ENGLISH: Final = frozenset(_ENGLISH.split())
_QUESTIONS: Final = {
    "de": (
        "bekomme", "bekommt", "benutze", "bitte", "brauche", "braucht", "geht", "gibt", "helfen", "lassen",
        "mache", "macht",
    )
}  # fmt: skip
"""Words that are frequent in questions and not in books."""


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of `language` in the spellings that `words` returns.

    The result is empty for an unknown language.
    """
    if language == "en":
        return ENGLISH
    from stop_words import AVAILABLE_LANGUAGES, LANGUAGE_MAPPING, get_stop_words

    name = LANGUAGE_MAPPING.get(language)
    listed = get_stop_words(language) if name in AVAILABLE_LANGUAGES else []
    return frozenset(
        spelt for word in (*listed, *_QUESTIONS.get(language, ())) for spelt in _spellings(word.casefold())
    )


def _spellings(word: str) -> set[str]:
    umlauts = word.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue")
    return {unicodedata.normalize("NFC", word), umlauts}
