"""Argos Translate packs as a backend: each is a CTranslate2 and a SentencePiece model.

These two libraries, an optional extra, run the packs directly: Argos Translate itself would add a machine
learning framework of gigabytes only to split sentences. The packs stay in Argos's own folder.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import TaskSet
from hearthnet.text import LANGUAGE_NAMES, sentences, text_parts
from hearthnet_trans.apertium.markup import Piece, pieces
from hearthnet_trans.backend import Pair, Translation, TranslationWork

if TYPE_CHECKING:
    from ctranslate2 import Translator
    from sentencepiece import SentencePieceProcessor

_log = logging.getLogger(__name__)
_LOADED: Final = 2
"""Packs in memory at once, some 100 MB each."""
_LONGEST: Final = 600
"""Characters of a sentence; a longer one is cut at a clause or word."""
_BEAM: Final = 4
_THREADS: Final = 2
_MOST_PIECES: Final = 256
_LOOK_SECONDS: Final = 10.0
_SPACE: Final = "\u2581"
"""SentencePiece's character for a space."""


class Metadata(msgspec.Struct):
    """The members of a pack's metadata.json that are read."""

    from_code: str
    to_code: str
    target_prefix: str = ""


class Pack(msgspec.Struct, frozen=True):
    """An installed pack."""

    folder: Path
    prefix: str


class Argos:
    """Translation by Argos Translate packs, as a `TranslationBackend`."""

    name = "argos"
    places = 2

    def __init__(self, folder: Path | None = None, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._folder = folder or packs_folder()
        self._look_every = look_seconds
        self._packs: dict[Pair, Pack] = {}
        self._loaded: OrderedDict[Pair, Loaded] = OrderedDict()
        self._working = asyncio.Lock()
        self._tasks = TaskSet()
        self.note = ""

    @property
    def pairs(self) -> frozenset[Pair]:
        """As `TranslationBackend.pairs`."""
        return frozenset(self._packs)

    async def open(self, changed: Callable[[], None]) -> None:
        """As `TranslationBackend.open`."""
        self._packs = await asyncio.to_thread(self._look)
        self._tasks.start(self._follow(changed), "argos follow")

    async def translate(self, work: TranslationWork) -> Translation:
        """Translate as `TranslationBackend.translate`: one text at a time, its sentences in parallel."""
        pair = work.source, work.target
        async with self._working:
            if pair not in self._packs:
                raise HearthNetError("not_found", f"the Argos pack {'-'.join(pair)} is no longer installed")
            text = await asyncio.to_thread(self._translated, pair, work.text)
        return Translation(text, f"argos-{'-'.join(pair)}")

    async def close(self) -> None:
        """As `TranslationBackend.close`."""
        await self._tasks.close()
        async with self._working:
            self._loaded.clear()

    def _translated(self, pair: Pair, text: str) -> str:
        try:
            if pair not in self._loaded:
                while len(self._loaded) >= _LOADED:
                    self._loaded.popitem(last=False)
                self._loaded[pair] = Loaded(self._packs[pair])
            self._loaded.move_to_end(pair)
            return self._loaded[pair].translated(text)
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("argos %s-%s: %s", *pair, error)
            raise HearthNetError(
                "internal_error", f"the Argos pack {'-'.join(pair)} is damaged: install it anew ({error})"
            ) from error

    def _look(self) -> dict[Pair, Pack]:
        """Return the installed packs if they can be run, else set the note."""
        found = dict(sorted(_installed(self._folder)))
        able = all(importlib.util.find_spec(name) for name in ("ctranslate2", "sentencepiece"))
        self.note = ""
        if found and not able:
            self.note = "Argos packs are there, and nothing to run them: pip install hearthnet-trans[argos]"
        return found if able else {}

    async def _follow(self, changed: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._look_every)
            found = await asyncio.to_thread(self._look)
            if found != self._packs:
                self._packs = found
                async with self._working:
                    self._loaded.clear()
                changed()


class Loaded:
    """A pack in memory. Blocks."""

    def __init__(self, pack: Pack) -> None:
        import ctranslate2
        import sentencepiece

        self._prefix = pack.prefix
        self._model: Translator = ctranslate2.Translator(
            str(pack.folder / "model"), device="cpu", inter_threads=_THREADS, intra_threads=1
        )
        self._pieces: SentencePieceProcessor = sentencepiece.SentencePieceProcessor(
            model_file=str(pack.folder / "sentencepiece.model")
        )

    def translated(self, text: str) -> str:
        """Return `text` with its sentences translated and everything between them unchanged."""
        whole = [piece for is_language, run in _runs(text) for piece in _sentences(is_language, run)]
        results = iter(self._sentences([part.strip() for is_language, part in whole if is_language]))
        return "".join(_around(part, next(results)) if is_language else part for is_language, part in whole)

    def _sentences(self, texts: list[str]) -> list[str]:
        if not texts:
            return []
        tokens: list[list[str]] = [self._pieces.encode(text, out_type=str) for text in texts]
        prefix = [[self._prefix]] * len(tokens) if self._prefix else None
        results = self._model.translate_batch(
            tokens,
            target_prefix=prefix,
            beam_size=_BEAM,
            length_penalty=0.2,
            replace_unknowns=True,
            max_batch_size=8,
            max_decoding_length=_MOST_PIECES,
        )
        return [self._joined(result.hypotheses[0]) for result in results]

    def _joined(self, tokens: list[str]) -> str:
        if self._prefix and tokens and tokens[0] == self._prefix:
            tokens = tokens[1:]
        return "".join(tokens).replace(_SPACE, " ").strip()


def packs_folder() -> Path:
    """Return the folder of Argos Translate's packs."""
    named = os.environ.get("ARGOS_PACKAGES_DIR")
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(named) if named else Path(data) / "argos-translate" / "packages"


def _installed(folder: Path) -> Iterator[tuple[Pair, Pack]]:
    """Yield the complete and readable packs of the folder."""
    for file in sorted(folder.glob("*/metadata.json")):
        try:
            about = msgspec.json.decode(file.read_bytes(), type=Metadata)
        except (OSError, msgspec.MsgspecError):
            continue
        needed = (file.parent / "model" / "model.bin", file.parent / "sentencepiece.model")
        if (
            all(part.is_file() for part in needed)
            and {about.from_code, about.to_code} <= LANGUAGE_NAMES.keys()
        ):
            yield (about.from_code, about.to_code), Pack(file.parent, about.target_prefix)


def _runs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield stretches of language and of kept text; single line breaks count as language."""
    for is_language, run in groupby(pieces(text), _is_language):
        yield is_language, "".join(piece.text for piece in run)


def _is_language(piece: Piece) -> bool:
    flowing = piece.text.isspace() and piece.text.count("\n") < 2
    return piece.kind in ("text", "space") or (piece.kind == "kept" and flowing)


def _sentences(is_language: bool, run: str) -> Iterator[tuple[bool, str]]:
    if not is_language:
        yield False, run
        return
    for part in (part for sentence in sentences(run) for part in text_parts(sentence, _LONGEST)):
        yield any(character.isalpha() for character in part), part


def _around(part: str, translation: str) -> str:
    """Return `translation` with the white space around `part`."""
    return part[: len(part) - len(part.lstrip())] + translation + part[len(part.rstrip()) :]
