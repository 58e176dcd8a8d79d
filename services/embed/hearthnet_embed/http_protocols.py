"""The two protocols of embedding servers: requests and responses (no I/O).

openai    POST BASE/embeddings    {model, input, encoding_format}    data[].{index, embedding}, usage
ollama    POST BASE/api/embed     {model, input, truncate}           embeddings[], prompt_eval_count
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from hearthnet import HearthNetError
from hearthnet.models import HttpRequest, base_url, without_login
from hearthnet_embed.backend import Embedded

Vector = list[float]


class Wire(msgspec.Struct, frozen=True):
    """One protocol; `ends` are path suffixes that users add to the server's address."""

    path: str
    body: Callable[[str, Sequence[str], bool], dict[str, Any]]
    answer: Callable[[bytes], Embedded]
    ends: tuple[str, ...] = ()


class _Item(msgspec.Struct):
    embedding: Vector
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0


class _OpenAi(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


class _Ollama(msgspec.Struct):
    embeddings: list[Vector]
    prompt_eval_count: Annotated[int, msgspec.Meta(ge=0)] = 0


def _openai_body(model: str, texts: Sequence[str], cut: bool) -> dict[str, Any]:
    return {"model": model, "input": list(texts), "encoding_format": "float"}


def _openai_answer(data: bytes) -> Embedded:
    found = msgspec.json.decode(data, type=_OpenAi)
    places = [item.index if item.index is not None else place for place, item in enumerate(found.data)]
    if sorted(places) != list(range(len(places))):
        raise msgspec.ValidationError("the indexes of its vectors are not those of the texts")
    vectors: list[Vector] = [[] for _ in places]
    for place, item in zip(places, found.data, strict=True):
        vectors[place] = item.embedding
    return Embedded(vectors, tokens=found.usage.prompt_tokens if found.usage else 0)


def _ollama_body(model: str, texts: Sequence[str], cut: bool) -> dict[str, Any]:
    return {"model": model, "input": list(texts), "truncate": cut}


def _ollama_answer(data: bytes) -> Embedded:
    found = msgspec.json.decode(data, type=_Ollama)
    return Embedded(found.embeddings, tokens=found.prompt_eval_count)


WIRES: Final[dict[Literal["openai", "ollama"], Wire]] = {
    "openai": Wire("/embeddings", _openai_body, _openai_answer),
    "ollama": Wire("/api/embed", _ollama_body, _ollama_answer, ("/v1", "/api")),
}


def request(wire: Wire, url: str, model: str, texts: Sequence[str], *, cut: bool = False) -> HttpRequest:
    """Return the HTTP request; with `cut` the server shortens texts that are too long."""
    base = base_url(without_login(url)[0].removesuffix(wire.path))
    for end in wire.ends:
        base = base.removesuffix(end)
    return HttpRequest("POST", base + wire.path, wire.body(model, texts, cut))


def read(wire: Wire, name: str, url: str, data: bytes, count: int) -> Embedded:
    """Return the server's answer to `count` texts.

    Raises:
        HearthNetError: `internal_error` if the response has no vectors or another number of them.
    """
    try:
        answer = wire.answer(data)
    except msgspec.DecodeError as error:
        what = "an HTML page" if data.lstrip()[:1] == b"<" else "no vectors"
        raise HearthNetError(
            "internal_error",
            f"{name}: {urlsplit(url).hostname} answered {what}; check its url in hearthnet.toml",
        ) from error
    sizes = {len(vector) for vector in answer.vectors}
    if len(answer.vectors) != count or len(sizes) != 1 or 0 in sizes:
        raise HearthNetError(
            "internal_error", f"{name}: the server gave {len(answer.vectors)} vectors for {count} texts"
        )
    return answer
