"""Data of servers about their models, in one form, without I/O.

A server's list has names of models, and mostly more: length of the context, vision, tools. Unstated values
are None; nothing is guessed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

Json = Mapping[str, Any]


class ModelCatalog(msgspec.Struct, frozen=True):
    """Paths at which a server lists its models, describes one, and lists the loaded ones.

    Descriptions are requested by POST {"model": ...}. A path is "" if the server lacks it.
    """

    path: str = "/models"
    details: str = ""
    loaded: str = ""
    headers: dict[str, str] = {}


class CatalogEntry(msgspec.Struct, frozen=True):
    """One model as described by its server; None is unstated.

    `ctx` is in tokens; with `most`, it is the model's maximum, and each request sets its own. `server` is the
    server program, as the name of a profile. `answer` is the maximum of tokens of an answer.
    """

    name: str
    ctx: int | None = None
    tools: bool | None = None
    vision: bool | None = None
    most: bool = False
    server: str | None = None
    answer: int | None = None

    def refined(self, better: CatalogEntry) -> CatalogEntry:
        """Return this description, updated by the values of `better`."""
        stated = ((field, getattr(better, field)) for field in ("ctx", "tools", "vision", "server", "answer"))
        most = self.most if better.ctx is None else better.most
        fields: dict[str, Any] = {field: value for field, value in stated if value is not None}
        return msgspec.structs.replace(self, most=most, **fields)


_CTX: Final = (
    "loaded_context_length",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "inputTokenLimit",
    "n_ctx",
    "n_ctx_train",
)
"""Names of the context's length; the length in use precedes the possible one."""
_ANSWER: Final = ("max_output_tokens", "max_completion_tokens", "outputTokenLimit", "max_tokens")
"""Names of the longest answer's length."""
_OWNERS: Final = {
    "llamacpp": "llamacpp",
    "vllm": "vllm",
    "organization_owner": "lmstudio",
    "library": "ollama",
}
"""Owner of the models as given by self-hosted programs, and the profile of each program."""
_INSIDE: Final = ("top_provider", "meta", "model_spec", "limits", "default_generation_settings")
_CHATS: Final = "generateContent"
_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_TOOLS: Final = ("tools", "tool_use", "function_calling", "function-calling", "tool_calling")
_VISION: Final = ("vision", "image", "images", "multimodal", "image_input")


def models(answer: Any) -> list[CatalogEntry] | None:
    """Return the models in a server's list, in its order, or None for JSON of another kind."""
    items = answer
    if isinstance(answer, Mapping):
        items = next((answer[key] for key in ("data", "models") if isinstance(answer.get(key), list)), None)
    if not isinstance(items, list):
        return None
    found = [_model(item) for item in _mappings(items) if _chats(item)]
    return [model for model in found if model.name]


def described(name: str, answer: Any) -> CatalogEntry:
    """Return a server's description of a single model: Ollama's /api/show, llama.cpp's /props."""
    if not isinstance(answer, Mapping):
        return CatalogEntry(name)
    model = _model({**answer, "id": name})
    info = answer.get("model_info")
    if isinstance(info, Mapping):
        most = next((value for key, value in info.items() if str(key).endswith(".context_length")), None)
        chosen = _NUM_CTX.search(str(answer.get("parameters", "")))
        ctx = int(chosen[1]) if chosen else _count(most)
        model = msgspec.structs.replace(model, ctx=ctx, most=bool(ctx and not chosen))
    listed = answer.get("capabilities")
    if isinstance(listed, list):  # this list is complete, so a missing ability is known to be absent
        model = msgspec.structs.replace(model, tools="tools" in listed, vision="vision" in listed)
    return model


def in_use(name: str, answer: Any) -> CatalogEntry:
    """Return a server's data of a loaded model: Ollama's /api/ps."""
    for item in _mappings(answer.get("models") if isinstance(answer, Mapping) else None):
        if name in (item.get("name"), item.get("model")):
            return CatalogEntry(name, _count(item.get("context_length")))
    return CatalogEntry(name)


def _chats(item: Json) -> bool:
    """Return whether it is a chat model, as far as stated."""
    methods = item.get("supportedGenerationMethods")
    return not isinstance(methods, list) or _CHATS in methods


def _model(item: Json) -> CatalogEntry:
    name = next((item[key] for key in ("id", "model", "name") if isinstance(item.get(key), str)), "")
    return CatalogEntry(
        name.removeprefix("models/"),
        _ctx(item),
        _able(item, _TOOLS),
        _able(item, _VISION),
        server=_OWNERS.get(str(item.get("owned_by"))),
        answer=next(_counts(item, _ANSWER), None),
    )


def _counts(item: Json, words: tuple[str, ...]) -> Iterator[int]:
    """Yield the counts under any of the words, in their order."""
    places = [item, *(inner for key in _INSIDE if isinstance(inner := item.get(key), Mapping))]
    for key in words:
        for place in places:
            count = _count(place.get(key))
            if count is not None:
                yield count


def _ctx(item: Json) -> int | None:
    stated = next(_counts(item, _CTX), None)
    if stated is not None:
        return stated
    found = [_count(one.get("context_length")) for one in _mappings(item.get("providers"))]
    return min((count for count in found if count is not None), default=None)


def _able(item: Json, words: tuple[str, ...]) -> bool | None:
    """Return whether the model has one of the abilities, or None if unstated."""
    stated = [*_words(item), *_switches(item, words)]
    if any(word in stated for word in words):
        return True
    return False if "" in stated else None


def _words(item: Json) -> Iterable[str]:
    """Yield abilities that are stated as lists of words; "" marks a list known to be complete."""
    inner = item.get("architecture")
    for place, key in ((item, "capabilities"), (item, "supported_parameters"), (item, "input_modalities"),
                       (inner, "input_modalities"), (item, "modalities")):  # fmt: skip
        value = place.get(key) if isinstance(place, Mapping) else None
        if isinstance(value, list):
            yield from (str(word) for word in value)
    if item.get("type") == "vlm":
        yield "vision"


def _switches(item: Json, words: tuple[str, ...]) -> Iterable[str]:
    """Yield abilities that are stated one by one as booleans; "" is yielded for false."""
    for key in ("capabilities", "modalities", "features"):
        value = item.get(key)
        for word in words if isinstance(value, Mapping) else ():
            ability = value.get(word) if isinstance(value, Mapping) else None
            ability = ability.get("supported") if isinstance(ability, Mapping) else ability
            if isinstance(ability, bool):
                yield word if ability else ""
    for one in _mappings(item.get("providers")):
        ability = one.get("supports_tools")
        if "tools" in words and isinstance(ability, bool):
            yield "tools" if ability else ""


def _mappings(value: Any) -> list[Json]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
