"""Replies, offers and notes of the rag service as they are shown. Pure."""

from __future__ import annotations

from typing import Any, Final

from hearthnet import Offer
from hearthnet.core import new_ulid, rfc3339
from hearthnet_rag.index.index import Ingested
from hearthnet_rag.index.journal import Record
from hearthnet_rag.mirror.copy_files import KeptCopy
from hearthnet_rag.ownership import name_of, person_of
from hearthnet_rag.schemas import IngestInput
from hearthnet_rag.search.embedding import QueryVector
from hearthnet_rag.search.search import Hit

K_MAX: Final = 20
_MOST_NAMED: Final = 3


def how_answered(outlook: QueryVector) -> dict[str, Any]:
    """Return the metadata that tells how a query was answered."""
    model = outlook.asked.model if outlook.asked is not None else None
    degraded = {"degraded": True, "notice": outlook.notice} if outlook.notice is not None else {}
    return {"embedding_model": model, **degraded}


def query_offer(key: str, *, shared: bool) -> Offer:
    """Return the offer of one corpus; that of another person than the owner says whose it is."""
    params, trust = {"corpus": name_of(key), "embedding_model": None, "k_max": K_MAX}, "home"
    if person := person_of(key):
        params["person"], trust = person, f"home/{person}"
    return Offer(capability="rag.query@1.0", params=params, trust="" if shared else trust)


def copy_offer(copy: KeptCopy) -> Offer:
    """Return the offer of a copy, while its home does not offer the corpus."""
    params = {"corpus": copy.corpus, "copy_of": copy.home, "embedding_model": None, "k_max": K_MAX}
    return Offer(capability="rag.query@1.0", params=params)


def version_of_copy(copy: KeptCopy) -> dict[str, Any]:
    """Return which version of which home a copy has."""
    return {"copy_of": copy.home, "version": copy.version, "as_of": rfc3339(copy.as_of)}


def record_of_input(key: str, wanted: IngestInput) -> Record:
    """Return the journal record of a new ingestion, with a new id."""
    return Record(
        corpus=key,
        doc_cid=wanted.doc_cid,
        event_id=new_ulid(),
        media_type=wanted.media_type,
        title=wanted.title,
        language=wanted.language,
        metadata=wanted.metadata,
    )


def passage(rank: int, hit: Hit, with_text: bool) -> dict[str, Any]:
    """Return a found passage as it is answered."""
    chunk = {"rank": rank, "score": hit.score, "text": hit.text, "metadata": hit.metadata}
    if not with_text:
        del chunk["text"]
    return chunk


def outcome(made: Ingested) -> dict[str, Any]:
    """Return the output of an ingestion."""
    return {"doc_cid": made.doc_cid, "chunks_indexed": made.chunks, "tokens_indexed": made.tokens}


def ingest_meta(corpus: str, made: Ingested) -> dict[str, Any]:
    """Return the metadata of an ingestion."""
    return {"corpus": corpus, "ingest_event_id": made.event_id, "embedding_model": None}


def undecided_note(corpora: list[str]) -> str:
    """Return the note about corpora that are private because their owner has not decided."""
    names = ", ".join(corpora[:_MOST_NAMED]) + (", ..." if len(corpora) > _MOST_NAMED else "")
    return (
        f"private until you decide: {names}; hearthnet corpus share {corpora[0]}, "
        f"or: hearthnet corpus unshare {corpora[0]}"
    )


def rebuilt_note(moved_to: str, restored: int, missing: int) -> str:
    """Return the note after the index was made anew."""
    lost = f"; {missing} could not be read any more" if missing else ""
    return (
        f"the search index was damaged: kept as {moved_to}, rebuilt with {restored} of your documents{lost}"
    )
