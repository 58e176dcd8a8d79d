"""What servers tell of their models, in the words of each; written after their documentation."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.config import ModelConfig
from hearthnet_llm.backends.backend_kinds import profile_of
from hearthnet_llm.vendors.catalog import CatalogEntry, described, in_use, models


@pytest.mark.req("LLM-42")
@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"id": "m", "object": "model"}, (None, None, None)),
        ({"id": "m", "max_model_len": 16384}, (16384, None, None)),
        ({"id": "m", "context_window": 131072}, (131072, None, None)),
        ({"id": "m", "max_context_length": 32768, "loaded_context_length": 4096, "type": "vlm"},
         (4096, None, True)),
        ({"id": "m", "meta": {"n_ctx_train": 8192}}, (8192, None, None)),
        ({"id": "m", "context_length": 9000, "architecture": {"input_modalities": ["text", "image"]},
          "supported_parameters": ["tools", "seed"]}, (9000, True, True)),
        ({"id": "m", "max_context_length": 32768,
          "capabilities": {"function_calling": True, "vision": False}}, (32768, True, False)),
        ({"id": "m", "providers": [{"context_length": 8000, "supports_tools": False},
                                   {"context_length": 4000, "supports_tools": True}]}, (4000, True, None)),
        ({"id": "m", "max_input_tokens": 200000, "capabilities": {"image_input": {"supported": True}}},
         (200000, None, True)),
        ({"name": "models/m", "inputTokenLimit": 1048576, "supportedGenerationMethods": ["generateContent"]},
         (1048576, None, None)),
        ({"name": "m", "model": "m", "size": 5}, (None, None, None)),
        ({"id": "m", "context_length": "many", "capabilities": 7, "providers": [3]}, (None, None, None)),
    ],
)  # fmt: skip
def test_each_vendors_words_are_understood(item: dict[str, Any], told: tuple[Any, ...]) -> None:
    expected = [CatalogEntry("m", *told)]
    assert models({"data": [item]}) == models({"models": [item]}) == models([item]) == expected


@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    ("owner", "server"),
    [("llamacpp", "llamacpp"), ("vllm", "vllm"), ("organization_owner", "lmstudio"), ("library", "ollama"),
     ("openai", None), (7, None)],
)  # fmt: skip
def test_programs_that_people_run_themselves_are_known_by_the_owner_they_name(
    owner: Any, server: str | None
) -> None:
    assert models({"data": [{"id": "m", "owned_by": owner}]}) == [CatalogEntry("m", server=server)]


@pytest.mark.req("LLM-42")
def test_what_cannot_chat_is_left_out_and_what_is_no_list_is_said_to_be_none() -> None:
    embedder = {"name": "models/e", "supportedGenerationMethods": ["embedContent"]}
    assert models({"models": [embedder, "x", {}]}) == []
    strange: tuple[Any, ...] = ({"error": "Unexpected endpoint"}, "hello", None, {"data": {}})
    assert [models(said) for said in strange] == [None] * 4


@pytest.mark.req("LLM-42")
def test_ollama_tells_more_of_one_model() -> None:
    said = {
        "parameters": "stop  x\nnum_ctx                        16384\n",
        "model_info": {"qwen3.context_length": 40960, "qwen3.block_count": 36},
        "capabilities": ["completion", "tools"],
    }
    assert described("q", said) == CatalogEntry("q", 16384, True, False)
    assert described("q", {**said, "parameters": ""}) == CatalogEntry("q", 40960, True, False, most=True)
    assert described("q", {"default_generation_settings": {"n_ctx": 2048}}).ctx == 2048
    assert described("q", []) == CatalogEntry("q")
    assert in_use("q", {"models": [{"name": "p"}, {"model": "q", "context_length": 4096}]}).ctx == 4096
    assert in_use("q", {"models": 3}) == CatalogEntry("q")


@pytest.mark.req("LLM-42", "LLM-45")
def test_the_word_of_the_config_comes_before_the_servers_and_that_before_what_is_usual() -> None:
    plain = ModelConfig("openai", "mine", "http://127.0.0.1:1/v1", "m")
    told = CatalogEntry("m", 32768, False, True)
    usual, known = profile_of(plain, CatalogEntry("m")), profile_of(plain, told)
    assert (usual.ctx, usual.tool_mode, usual.modalities) == (8192, "native", ("text",))
    assert (known.ctx, known.tool_mode, known.modalities) == (32768, "none", ("text", "vision"))
    chosen = ModelConfig("openai", "mine", "http://127.0.0.1:1/v1", "m", ctx=9, tools=True, vision=False)
    own = profile_of(chosen, told)
    assert (own.ctx, own.tool_mode, own.modalities) == (9, "native", ("text",))
    assert (
        profile_of(ModelConfig("anthropic", "c", "https://x.example", "m"), CatalogEntry("m")).ctx == 200_000
    )
