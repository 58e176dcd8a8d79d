"""Words as the index knows them: folded, reduced to their stem, German compounds with their parts beside.

A document is read in its own language, a query in all languages of the corpus it goes to, both by the same
functions, so that they cannot drift apart. What reaches SQLite is letters and digits only: no text of a
document or a query can be FTS syntax. ä, ö, ü and ß meet ae, oe, ue and ss; other accents do not count.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from hearthnet_rag.compounds import split
from hearthnet_rag.stop_words import stop_words

ALGORITHMS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The Snowball stemmer of each language that has one; texts in others keep their words as they are."""
COMPOUNDING: Final = frozenset({"de"})
"""Languages whose compounds are taken apart; German alone has been measured."""
DEFAULT: Final = "en"
"""How a text is read whose language nobody knows."""
_COMMON: Final = ("en", "de", "fr", "es", "it", "nl", "pl", "pt", "tr")

Known = Callable[[str], int]
"""In how many passages a stem stands."""

_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'"})
_LONGEST: Final = 64
"""Longer words (keys, sums, addresses) are cut here; no stemmer has anything to say of them."""


def nothing_known(stem: str) -> int:
    """The vocabulary of a corpus that is empty."""
    return 0


def base_language(code: str | None) -> str:
    """`de` for `de-DE`, `de_AT` and `DE`; what is read as English where there is none."""
    return re.split(r"[-_]", (code or DEFAULT).lower(), maxsplit=1)[0] or DEFAULT


def words(text: str) -> list[str]:
    """The words of `text` in order: case-folded, no punctuation but inner apostrophes, 64 characters each."""
    plain = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).casefold()
    composed = unicodedata.normalize("NFC", plain)
    return [word[:_LONGEST] for word in _WORD.findall(_NOT_ASCII.sub(_unless_accent, composed))]


class Analyser:
    """Makes stems of texts of one language, by what the corpus knows; to be used by one thread."""

    def __init__(self, language: str | None = None, known: Known = nothing_known) -> None:
        self._language = base_language(language)
        self._known = known
        self._seen: dict[str, str] = {}

    def text(self, text: str) -> str:
        """`text` as the index stores it: stems, and those of their parts, with one blank between them."""
        return " ".join(filter(None, map(self.word, words(text))))

    def word(self, word: str) -> str:
        """The stems of one word that `words` found."""
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


def query_stems(query: str, languages: Sequence[str] = (DEFAULT,), known: Known = nothing_known) -> list[str]:
    """The distinct stems to look for, in order, without stop words; with them where nothing else is left.

    `languages` are those of the documents. Whose stop words count is told by the query itself: the words of
    the language that it has most of.
    """
    found = words(query)
    empty = _stop_words_for(found, {*languages, DEFAULT})
    telling = [word for word in found if word not in empty] or found
    analysers = [Analyser(language, known) for language in languages]
    stems = " ".join(analyser.word(word) for word in telling for analyser in analysers)
    return list(dict.fromkeys([*stems.split(), *map(_written, found)]))


def could_be_in(query: str, languages: Collection[str]) -> bool:
    """Whether the function words of `query` allow for one of `languages`; without any they always do."""
    found = words(query)
    counts = {name: sum(word in stop_words(name) for word in found) for name in {*languages, *_COMMON}}
    return any(counts[language] == max(counts.values()) for language in languages)


def _stop_words_for(found: Sequence[str], languages: set[str]) -> frozenset[str]:
    counts = {language: sum(word in stop_words(language) for word in found) for language in languages}
    most = max(counts.values())
    return frozenset().union(*(stop_words(language) for language, count in counts.items() if count == most))


def as_written(text: str) -> str:
    """The words of `text` themselves, as the index keeps those of headings: who asks in them means these."""
    return " ".join(map(_written, words(text)))


def _written(word: str) -> str:
    """A word that is no stem: none but that of a number begins so."""
    return "0" + _without_accents(word.replace("'", ""))


def _unless_accent(found: re.Match[str]) -> str:
    return "" if unicodedata.combining(found[0]) else found[0]


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(letter for letter in unicodedata.normalize("NFKD", word) if letter.isalnum())


@functools.lru_cache(maxsize=100_000)
def stem(word: str, language: str) -> str:
    """The stem of a word that `words` found, in letters without accents and digits."""
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


_lock: Final = threading.Lock()  # a stemmer keeps the word it works on in itself
