"""Words in the form of the index: folded, reduced to stems, with the parts of compounds.

Only German compounds are divided. A document is analysed in its own language, a query in all languages of the
corpus, both by the same functions, so that they cannot diverge. SQLite receives only letters and digits: no
text of a document or a query can be FTS syntax. ä, ö, ü and ß equal ae, oe, ue and ss; other accents are
ignored.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from hearthnet_rag.text.decompounding import split
from hearthnet_rag.text.stop_words import stop_words

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
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'"})
_LONGEST: Final = 64
"""Longer words (keys, sums, addresses) are cut here; stemmers have no rules for them."""


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
    plain = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).casefold()
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


_lock: Final = threading.Lock()  # a stemmer stores the current word in itself
