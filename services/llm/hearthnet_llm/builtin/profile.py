"""The built-in model in data.

See: docs/models.md#the-model-in-the-box.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hearthnet_llm.profile import Profile
from hearthnet_llm.vendors.estimate import tokens

SLOTS: Final = 2
CTX: Final = 4096
NOTES_BUDGET: Final = 2000
"""Characters of tool results in a prompt: about 500 tokens, 3.5 s of reading on 2 cores."""
_MOST_RESULT: Final = tokens(NOTES_BUDGET)
MOST_QUOTES: Final = 3
"""Sentences of an answer that quotes."""

BUILT_IN: Final = Profile(
    model="smollm2-135m-instruct",
    backend="llama.cpp",
    ctx=CTX,
    most_result=_MOST_RESULT,
    tool_mode="grammar",
    tools_by_name_only=True,
    languages=("en",),
    quotes=True,
    advice=(
        "SmolLM2-135M is there to try things out: English only, often wrong. "
        "To connect a better model: hearthnet models add ollama, or any other (docs/models.md)."
    ),
    max_concurrent=SLOTS,
)


def of_file(file: Path) -> Profile:
    """The profile of a GGUF file that the config names: nothing is known of it, so nothing is promised but
    the engine.
    """
    return Profile(
        model=file.stem.lower(),
        backend="llama.cpp",
        ctx=CTX,
        most_result=_MOST_RESULT,
        tool_mode="grammar",
        tools_by_name_only=True,
        advice=f"{file.name} runs in the service itself; it takes tools when they are demanded by name.",
        max_concurrent=SLOTS,
    )
