"""The trans service: one offer for each backend that has a pair of languages.

If several backends have a pair, the first of Apertium, Argos and the models translates, unless the caller
names one.

See: docs/trans.md#what-translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from hearthnet import Call, HearthNetError, NodeContext, Offer, Reply, Service, capability
from hearthnet.contracts import nearest_pairs
from hearthnet.text import check_language, detected_language, detector_available
from hearthnet_trans.apertium.backend import Apertium
from hearthnet_trans.argos import Argos
from hearthnet_trans.backend import Translation, TranslationBackend, TranslationWork
from hearthnet_trans.cache import Cache, key_of
from hearthnet_trans.llm_backend import LlmBackend

AUTO: Final = "auto"
_NONE: Final = (
    "nothing translates here: install pairs of languages with `apt-get install apertium apertium-eng-spa` "
    "(others: apt-cache search apertium) or Argos Translate packs; they are found while the node runs "
    "(docs/trans.md)"
)
_NOTHING_DONE: Final = {"backend": "none", "model": ""}
"""Metadata of a reply for which nothing had to be translated."""


class TransParams(msgspec.Struct, frozen=True):
    """The requested backend; None selects the first one that has the pair."""

    backend: str | None = None


class TransInput(msgspec.Struct, frozen=True):
    """The text, its languages and its domain."""

    text: str
    to: str
    source: str = msgspec.field(name="from")
    domain: str | None = None


class TransService(Service):
    """Translation by the backends of this node."""

    name: ClassVar[str] = "trans"

    def __init__(self, backends: Sequence[TranslationBackend] | None = None) -> None:
        super().__init__()
        self._backends = backends
        self._cache = Cache()

    async def start(self, node: NodeContext) -> None:
        """Open the backends."""
        if self._backends is None:
            self._backends = [Apertium(), Argos(), LlmBackend(node.bus)]
        for number, backend in enumerate(self._backends):
            node.progress("looking for languages", number, len(self._backends))
            await backend.open(partial(self._changed_at, backend))
        self._update_note()

    def offers(self) -> list[Offer]:
        """Offer each backend that has a pair."""
        return [_offer(backend) for backend in self._backends or () if backend.pairs]

    async def stop(self) -> None:
        """Close the backends."""
        for backend in self._backends or ():
            await backend.close()

    @capability("trans.text@1.0")
    async def text(self, call: Call[TransParams, TransInput]) -> Reply:
        """Translate one text."""
        wanted = call.input
        check_language(wanted.to)
        source = wanted.source
        if source == AUTO:
            source = await self._detect(wanted, call.params.backend)
        else:
            check_language(source)
        detected = {"detected_from": source} if wanted.source == AUTO else {}
        if source == wanted.to and detected:
            return Reply({"text": wanted.text, "confidence": 1.0, **detected}, _NOTHING_DONE)
        backend = self._choose(source, wanted.to, call.params.backend)
        until = call.until - (call.remaining() - call.allowed())
        work = TranslationWork(wanted.text, source, wanted.to, wanted.domain, until)
        done, cached = await self._translate(backend, work)
        return Reply(
            {"text": done.text, "confidence": done.confidence, **detected},
            {"backend": backend.name, "model": done.model, "cached": cached},
        )

    async def _translate(
        self, backend: TranslationBackend, work: TranslationWork
    ) -> tuple[Translation, bool]:
        """Return the translation, and whether it came from the cache."""
        key = key_of(work, backend.name)
        cached = self._cache.get(key)
        if cached is not None:
            return cached, True
        done = await backend.translate(work)
        self._cache.put(key, done)
        return done, False

    def _those(self, name: str | None) -> list[TranslationBackend]:
        """Return the backends that may translate, in order.

        Raises:
            HearthNetError: `not_found` if there is none, or none with this name.
        """
        able = [backend for backend in self._backends or () if backend.pairs and name in (None, backend.name)]
        if not able:
            has = ", ".join(backend.name for backend in self._backends or () if backend.pairs) or "none"
            wanted = f"no backend {name!r}" if name else "no backend"
            raise HearthNetError("not_found", f"this node has {wanted} to translate with; it has: {has}")
        return able

    def _choose(self, source: str, target: str, name: str | None) -> TranslationBackend:
        """Return the backend for a pair.

        Raises:
            HearthNetError: `not_found`, with the nearest pairs, if no backend has the pair.
        """
        able = self._those(name)
        for backend in able:
            if (source, target) in backend.pairs:
                return backend
        words, details = nearest_pairs(
            source, target, frozenset().union(*(backend.pairs for backend in able))
        )
        raise HearthNetError(
            "not_found",
            f"nobody here translates from {source} into {target}; {words}",
            details={"nearest": details},
        )

    async def _detect(self, wanted: TransInput, name: str | None) -> str:
        """Return the language of the text.

        Raises:
            HearthNetError: `bad_request` if it cannot be detected.
        """
        expected = {a for backend in self._those(name) for a, b in backend.pairs if b == wanted.to}
        found = await detected_language(wanted.text, expected | {wanted.to})
        if found is not None:
            return found.language
        why = "the text is too short or too mixed to tell its language"
        if not detector_available():
            why = "this node cannot detect languages: lingua-language-detector is not installed beside it"
        known = ", ".join(sorted(expected)[:12]) or "nothing"
        raise HearthNetError(
            "bad_request",
            f"{why}; name it in `from` (into {wanted.to} there is: {known})",
            details={"path": "/input/from", "from": sorted(expected)},
        )

    def _changed_at(self, backend: TranslationBackend) -> None:
        self._cache.forget(backend.name)
        self._update_note()
        self.offers_changed()

    def _update_note(self) -> None:
        backends = self._backends or ()
        notes = [backend.note for backend in backends if backend.note]
        translates = any(backend.pairs for backend in backends)
        self.note = "; ".join(notes if translates else [_NONE, *notes]) or None


def _offer(backend: TranslationBackend) -> Offer:
    params: dict[str, Any] = {"backend": backend.name, "languages_pairs": sorted(map(list, backend.pairs))}
    return Offer(capability="trans.text@1.0", params=params, max_concurrent=backend.places)
