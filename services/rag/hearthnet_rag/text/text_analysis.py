"""Words in the form of the index: folded, without stop words, reduced to stems, with the parts of compounds.

Only German compounds are divided, based on the words of the corpus alone. A word is a compound if it
consists of words that occur in the corpus by themselves, joined directly or by s, es, n, en or er. Of several
divisions the one with the fewest parts is used, then the one whose rarest part is the most frequent
(docs/decisions/0114).

A document is analysed in its own language, a query in all languages of the corpus, both by the same
functions, so that they cannot diverge. SQLite receives only letters and digits: no text of a document or a
query can be FTS syntax. ä, ö, ü and ß equal ae, oe, ue and ss; other accents are ignored.

English stop words were chosen for questions (docs/decisions/0030); those of other languages are the
library's.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

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
SHORTEST_PART: Final = 4
SHORTEST: Final = 9
LONGEST: Final = 40
MOST_PARTS: Final = 3
_JOINTS: Final = ("", "s", "es", "n", "en", "er")
Frequency = Callable[[str], int]
"""Returns the number of occurrences of a word by itself, 0 for an unknown word."""
ALGORITHMS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The Snowball stemmer of each language that has one; words of other languages stay unchanged."""
COMPOUNDING: Final = frozenset({"de"})
"""Languages whose compounds are divided; only German was measured."""
DEFAULT: Final = "en"
"""The language assumed for a text of unknown language."""
_COMMON: Final = ("en", "de", "fr", "es", "it", "nl", "pl", "pt", "tr")
Known = Callable[[str], int]
"""Returns the number of passages that contain a stem."""
_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_FOLDED: Final = str.maketrans(
    {
        **dict.fromkeys("\u2019\u02bc\u2018", "'"),
        "\uff9e": "\u3099", "\uff9f": "\u309a",
        "\u0f73": "\u0f71\u0f72", "\u0f75": "\u0f71\u0f74", "\u0f81": "\u0f71\u0f80",
    }
)  # fmt: skip
"""Apostrophes, and what is no accent but becomes one when it is normalized."""
_MOST_MARKS: Final = 30
"""Accents in a row, as in Unicode's stream-safe format; sorting more takes the square of their number."""
_MARKS: Final = re.compile(rf"[^\w\s\x00-\x7f]{{{_MOST_MARKS + 1},}}")
"""Characters among which too many accents may stand; no accent is a letter, a digit or a blank."""
_LONGEST: Final = 64
"""Longer words (keys, sums, addresses) are cut here; stemmers have no rules for them."""
_lock: Final = threading.Lock()  # a stemmer stores the current word in itself


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


def split(word: str, frequency: Frequency) -> list[str]:
    """Return the parts of `word` without their joints, or an empty list if it is no compound."""
    if not SHORTEST <= len(word) <= LONGEST or not word.isalpha():
        return []

    def order(way: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        return len(way), -min(map(frequency, way)), way

    best: tuple[str, ...] = min(_ways(word, frequency, MOST_PARTS), key=order, default=())
    return list(best)


def _ways(word: str, frequency: Frequency, parts: int) -> Iterator[tuple[str, ...]]:
    """Yield the divisions of `word` into two to `parts` known words."""
    for at in range(SHORTEST_PART, len(word) - SHORTEST_PART + 1):
        last = word[at:]
        if not frequency(last):
            continue
        for first in _without_joint(word[:at]):
            if frequency(first):
                yield (first, last)
            elif parts > 2:
                yield from ((*way, last) for way in _ways(first, frequency, parts - 1))


def _without_joint(part: str) -> Iterator[str]:
    for joint in _JOINTS:
        if part.endswith(joint) and len(part) - len(joint) >= SHORTEST_PART:
            yield part[: len(part) - len(joint)]


def EMPTY_STATS(stem: str) -> int:
    """Return 0: the vocabulary of an empty corpus."""
    return 0


def base_language(code: str | None) -> str:
    """Return `de` for `de-DE`, `de_AT` and `DE`, and the default for None."""
    return re.split(r"[-_]", (code or DEFAULT).lower(), maxsplit=1)[0] or DEFAULT


def words(text: str) -> list[str]:
    """Return the words of `text` in order: case-folded, with at most 64 characters each.

    Inner apostrophes are the only punctuation that is kept.
    """
    bounded = _MARKS.sub(_without_most_marks, text.translate(_FOLDED))
    plain = unicodedata.normalize("NFKC", bounded).casefold()
    composed = unicodedata.normalize("NFC", plain)
    return [word[:_LONGEST] for word in _WORD.findall(_NOT_ASCII.sub(_unless_accent, composed))]


class Analyser:
    """Conversion of texts of one language to stems, by the corpus's vocabulary.

    An instance is for one thread.
    """

    def __init__(self, language: str | None = None, known: Known = EMPTY_STATS) -> None:
        self._language = base_language(language)
        self._known = known
        self._seen: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return `text` as the index stores it: stems and stems of parts, separated by blanks."""
        return " ".join(filter(None, map(self.word, words(text))))

    def word(self, word: str) -> str:
        """Return the stems of one word that `words` returned."""
        found = self._seen.get(word)
        if found is None:
            found = self._seen[word] = " ".join(self._stems(word))
        return found

    def _stems(self, word: str) -> Iterable[str]:
        whole = stem(word, self._language)
        if self._language not in COMPOUNDING:
            return [whole]
        parts = split(word, lambda part: self._known(stem(part, self._language)))
        return [whole, *(stem(part, self._language) for part in parts)]


def query_stems(query: str, languages: Sequence[str] = (DEFAULT,), known: Known = EMPTY_STATS) -> list[str]:
    """Return the distinct stems of a query, in order, without stop words.

    If nothing else is left, stop words are kept. `languages` are those of the documents. Stop words are those
    of the languages of which the query itself has the most.
    """
    found = words(query)
    empty = _stop_words_for(found, {*languages, DEFAULT})
    telling = [word for word in found if word not in empty] or found
    analysers = [Analyser(language, known) for language in languages]
    stems = " ".join(analyser.word(word) for word in telling for analyser in analysers)
    return list(dict.fromkeys([*stems.split(), *map(_written, found)]))


def likely_language(query: str, languages: Collection[str]) -> bool:
    """Return whether the query's stop words permit one of `languages`; without any they do."""
    found = words(query)
    counts = {name: sum(word in stop_words(name) for word in found) for name in {*languages, *_COMMON}}
    return any(counts[language] == max(counts.values()) for language in languages)


def _stop_words_for(found: Sequence[str], languages: set[str]) -> frozenset[str]:
    counts = {language: sum(word in stop_words(language) for word in found) for language in languages}
    most = max(counts.values())
    return frozenset().union(*(stop_words(language) for language, count in counts.items() if count == most))


def surface_forms(text: str) -> str:
    """Return the words of `text` unstemmed, in the index's form for words of headings.

    A query in exactly these words matches the heading.
    """
    return " ".join(map(_written, words(text)))


def _written(word: str) -> str:
    """Return an unstemmed word with a prefix that no stem but that of a number has."""
    return "0" + _without_accents(word.replace("'", ""))


def _without_most_marks(found: re.Match[str]) -> str:
    """Return the characters without what exceeds `_MOST_MARKS` accents in a row."""
    kept: list[str] = []
    marks = 0
    for character in found[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def _unless_accent(found: re.Match[str]) -> str:
    return "" if unicodedata.combining(found[0]) else found[0]


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(letter for letter in unicodedata.normalize("NFKD", word) if letter.isalnum())


@functools.lru_cache(maxsize=100_000)
def stem(word: str, language: str) -> str:
    """Return the stem of a word that `words` returned, as letters without accents and digits."""
    plain = _without_accents(word) if language == "en" and not word.isascii() else word
    algorithm = ALGORITHMS.get(language)
    if algorithm is not None:
        with _lock:
            plain = _stemmer(algorithm).stemWord(plain)
    return _without_accents(plain.replace("'", ""))


@functools.cache
def _stemmer(algorithm: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(algorithm)
