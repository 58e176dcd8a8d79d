"""Profiles of the built-in model and of other model files.

See: docs/models.md#the-model-in-the-box.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hearthnet.text import weight_tokens
from hearthnet_llm.interface.backend import Profile

SLOTS: Final = 2
CTX: Final = 4096
NOTES_BUDGET: Final = 2000
"""Characters of tool results in a prompt: about 500 tokens, 3.5 s of reading on 2 cores."""
_MOST_RESULT: Final = weight_tokens(NOTES_BUDGET)
MOST_QUOTES: Final = 3
"""Sentences in an answer made of quotes."""

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
    """Return the profile of a GGUF file named in the config.

    Its abilities are unknown, so it promises only what the engine provides.
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
