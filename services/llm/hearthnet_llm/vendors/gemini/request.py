"""The whole request in both directions (ai.google.dev, "Generating content").

Vertex AI has the same below another path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, ResponseSchema, Thinking
from hearthnet_llm.vendors.field_tables import our_word, read_fields, same_names, write_fields
from hearthnet_llm.vendors.gemini import dialect, messages, tools
from hearthnet_llm.vendors.json_access import checked, fields, refuse, ungrammatical, without_nones
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "query": (
        "auto",
        "none",
        "alt=sse",
        "alt=json",
        "%24alt=json%3Benum-encoding%3Dint",
        "%24alt=json%3Benum-encoding%3Dint&alt=sse",
        "$alt=json;enum-encoding=int",
        "alt=sse&%24alt=json%3Benum-encoding%3Dint",
    ),
    "model": ("path", "name", "full", "resource"),
    "generation": ("absent", "empty"),
    "parameters": ("parametersJsonSchema", "parameters"),
    "response_schema": ("responseJsonSchema", "responseSchema"),
    "mime": ("auto", "none", "text/plain", "text/x.enum"),
    "no_args": ("object", "absent"),
    "no_parts": ("list", "absent"),
    "short_ids": ("ours", "sent"),
    "media_result": ("output", "absent"),
    "proof": ("text", "alone", "thought"),
    "arguments": ("whole", "streamed"),
    "types": dialect.TYPES,
    "nullable": ("field", "list"),
    "output_types": dialect.TYPES,
    "output_nullable": ("field", "list"),
    "mode": ("name", "number", "lower"),
    "auto": ("AUTO", "VALIDATED", "MODE_UNSPECIFIED"),
    "among": ("VALIDATED", "AUTO"),
    "names": ("absent", "empty"),
    "tool_config": ("absent", "empty", "calling", "alone"),
    "tools": ("apart", "together"),
    "functions": ("together", "apart"),
    "no_functions": ("absent", "listed"),
    **dict.fromkeys(("contents", "tool_list", "contents_parts", "system_parts"), ("list", "one")),
    "system_role": ("none", "user", "model", "system"),
    "user_role": ("user", "none"),
    "result_role": ("user", "function", "tool", "none"),
    "unsigned": ("marked", "plain"),
    **messages.thought_choices(),
    **dialect.SPELLINGS,
}
_MODELS: Final = "models"
_COLLECTIONS: Final = ("models", "tunedmodels", "endpoints")
"""Collections of models in a path, in small letters; Vertex AI serves tuned models as endpoints."""
_ACTIONS: Final = ("generateContent", "streamGenerateContent")
_STREAM: Final = "alt=sse"
_PLAIN: Final[dict[str, str]] = {
    "max_tokens": "maxOutputTokens",
    **same_names("temperature", "seed"),
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
_JSON: Final = "application/json"
_THINKING_DISPLAY: Final[dict[str, bool]] = {"parsed": True, "hidden": False}
_AS_NEEDED: Final = -1
_PROOFS: Final = ("gemini-3",)
"""Models that refuse calls without a proof of the thought behind them."""


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /models/{model}:generateContent, or its streaming variant."""
    ungrammatical(request)
    spelling = target.spelling
    proofs = target.model.startswith(_PROOFS)
    body = {
        **messages.Writer(request.messages, spelling, proofs).write(),
        **tools.write(request, spelling),
    }
    if request.service_tier is not None:
        body["serviceTier"] = request.service_tier
    if (named := spelling.get("model", "path")) != "path":
        body["model"] = _named(target.model, target.base)[named]
    generation = _generation(request, spelling)
    if generation or spelling.get("generation") == "empty":
        body["generationConfig"] = generation
    model = target.model if "/" in target.model else f"{_MODELS}/{target.model}"
    url = f"{target.base}/{model}:{_ACTIONS[bool(request.stream)]}"
    query = spelling.get("query", "auto")
    if query == "auto":
        query = _STREAM if request.stream else "none"
    spelled = dialect.spelled(body, "Request", spelling)
    return HttpRequest("POST", url if query == "none" else f"{url}?{query}", spelled)


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the request of a native one, as `Wire.read`."""
    spelling: dict[str, str] = {}
    path, _, query = native.url.partition("?")
    path, _, action = path.rpartition(":")
    rest, _, model = path.rpartition("/")
    base, _, collection = rest.rpartition("/")
    if collection != _MODELS:
        model = f"{collection}/{model}"
    if collection.lower() not in _COLLECTIONS or action not in _ACTIONS:
        refuse("path", f"must be /models/MODEL:{_ACTIONS[0]} or :{_ACTIONS[1]}")
    streamed = action == _ACTIONS[1]
    if query != (_STREAM if streamed else ""):
        spelling["query"] = query or "none"
    body = dialect.camel(native.body, "Request", spelling)
    if body.get("model") is not None:
        forms = _named(model, base)
        spelling["model"] = next((form for form, name in forms.items() if name == body["model"]), "name")
    generation = body.get("generationConfig")
    spelling["generation"] = "absent" if generation is None else "empty"
    generation = fields(generation or {}, "generationConfig")
    request = ChatRequest(
        messages=messages.ContentsReader(spelling).read(body),
        response_schema=_read_output(generation, spelling),
        thinking=_read_thinking(generation),
        service_tier=body.get("serviceTier"),
        stream=streamed,
        **tools.read(body, spelling),
        **{name: _whole(value) for name, value in read_fields(generation, _PLAIN).items()},
    )
    return checked(request), Target(model, base, vendor, spelling=spelling)


def _generation(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    made = write_fields(request, _PLAIN)
    mime = spelling.get("mime", "auto")
    if mime not in ("auto", "none"):
        made["responseMimeType"] = mime
    elif request.response_schema is not None and mime == "auto":
        made["responseMimeType"] = _JSON
    if request.response_schema is not None:
        schema = request.response_schema.schema
        if schema is not None and spelling.get("response_schema") == "responseSchema":
            made["responseSchema"] = dialect.write_schema(schema, spelling, "output_")
        elif schema is not None:
            made["responseJsonSchema"] = schema
    thinking = {} if request.thinking is None else {"thinkingConfig": _thinking(request.thinking)}
    return {**made, **thinking}


def _named(model: str, base: str) -> dict[str, str]:
    """Return the forms in which a body may repeat the model's name from the path.

    `resource` is Vertex AI's form, from the project on.
    """
    project = base[base.find("projects/") :] if "projects/" in base else ""
    full = f"{_MODELS}/{model}"
    return {"name": model, "full": full, "resource": f"{project}/{full}" if project else full}


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer: Google's clients write topK as 40.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _thinking(thinking: Thinking) -> Json:
    shown = None if thinking.show is None else _THINKING_DISPLAY.get(thinking.show)
    if thinking.effort is not None and thinking.mode != "off":  # the vendor refuses both together
        return without_nones(includeThoughts=shown, thinkingLevel=thinking.effort)
    budget = {"off": 0, "auto": _AS_NEEDED}.get(str(thinking.mode), thinking.budget_tokens)
    return without_nones(includeThoughts=shown, thinkingBudget=budget)


def _read_thinking(generation: Json) -> Thinking | None:
    if generation.get("thinkingConfig") is None:
        return None
    where = "generationConfig.thinkingConfig"
    native = fields(generation["thinkingConfig"], where)
    budget = native.get("thinkingBudget")
    return Thinking(
        mode="auto" if budget == _AS_NEEDED else None,
        effort=native.get("thinkingLevel"),
        budget_tokens=None if budget == _AS_NEEDED else budget,
        show=our_word(_THINKING_DISPLAY, native.get("includeThoughts"), f"{where}.includeThoughts"),
    )


def _read_output(generation: Json, spelling: dict[str, str]) -> ResponseSchema | None:
    schema: Any = generation.get("responseJsonSchema")
    if generation.get("responseSchema") is not None:
        spelling["response_schema"] = "responseSchema"
        where = "generationConfig.responseSchema"
        schema = dialect.read_schema(fields(generation["responseSchema"], where), spelling, "output_")
    mime = generation.get("responseMimeType")
    if mime in SPELLINGS["mime"] or (mime is None and schema is not None):
        spelling["mime"] = mime or "none"
    if schema is None and mime != _JSON:
        return None
    return ResponseSchema(schema=schema)
