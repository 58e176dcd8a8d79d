"""A service that stands for a library: corpora by name, shared and private."""

from __future__ import annotations

from typing import Any, ClassVar

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.core.errors import HearthNetError
from tests.helpers.probe import ROW


class Shelf(Service):
    """Offers corpora, of which some are the home's alone; its documents are an
    error, unless it has any.
    """

    name: ClassVar[str] = "shelf"

    def __init__(
        self, shared: tuple[str, ...], private: tuple[str, ...] = (), *, has_documents: bool = False
    ) -> None:
        super().__init__()
        self._names = tuple(sorted((*shared, *private)))
        self._private = private
        self._has_documents = has_documents

    def offers(self) -> list[Offer]:
        """Both lists, and a query for each corpus."""
        return [
            *(Offer(capability=f"rag.list_{what}@1.0") for what in ("corpora", "documents")),
            *(
                Offer(
                    capability="rag.query@1.0",
                    params={"corpus": name, "embedding_model": None, "k_max": 20},
                    trust="home" if name in self._private else "",
                )
                for name in self._names
            ),
        ]

    @capability("rag.list_corpora@1.0")
    async def corpora(self, call: Call[Any, Any]) -> Reply:
        """All."""
        figures = {"docs": 1, "chunks": 1, "size_bytes": 1, "language_majority": None}
        return Reply({"corpora": [{"name": name, **figures} for name in self._names]})

    @capability("rag.list_documents@1.0")
    async def documents(self, call: Call[Any, Any]) -> Reply:
        """One, where there are any."""
        corpus = call.body["params"]["corpus"]
        if self._has_documents:
            figures = {"language": None, "year": None, "chunks": 1, "size_bytes": 1}
            row = {"doc_cid": "blake3:" + "0" * 64, "title": f"in {corpus}", **figures}
            return Reply({"documents": [row], "truncated": False}, {"corpus": corpus})
        raise HearthNetError("not_found", f"the corpora here are {', '.join(self._names)}")

    @capability("rag.query@1.0")
    async def query(self, call: Call[Any, Any]) -> Reply:
        """A passage that names the corpus, where there are documents."""
        corpus = call.body["params"]["corpus"]
        passages = [{**ROW, "text": f"{number} in {corpus}", "rank": number} for number in (1, 2, 3)]
        chunks = passages if self._has_documents else []
        return Reply({"chunks": chunks}, {"corpus": corpus, "embedding_model": None})
