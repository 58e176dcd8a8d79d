"""Sampling parameters and answer limits that each generation of Claude accepts.

Since Opus 4.7 temperature, top_p and top_k are refused; models of 4.5 and 4.6 refuse temperature and top_p
together; a thinking model accepts no temperature but 1; and from version 2026-10-21 of the API on none of
them is accepted. Parameters that would only make a request fail are dropped here. Other models behind a
server of this protocol accept all of them ("sent").
"""

from __future__ import annotations

import re
from typing import Final

from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors.json_access import without_nones
from hearthnet_llm.vendors.wire import Json

CHOICES: Final = ("auto", "sent")
"""By the model's generation, or all parameters as requested."""
_EARLIER: Final = re.compile(r"claude-(v?[123]|instant|[a-z]+-4([-.][0-6](?!\d)|-20\d{6}|$|[@:]))")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d$")
_NONE_SINCE: Final = "2026-10-21"
"""The version of the API that accepts none of them."""
_ONE_OF_TWO: Final = re.compile(r"claude-[a-z]+-4[-.][56]")
"""Models that accept a temperature or top_p, and not both."""
_LONGEST: Final = (
    (re.compile(r"claude-(v?[12]|instant|3-(opus|sonnet|haiku))"), 4096),
    (re.compile(r"claude-3[-.]5"), 8192),
    (re.compile(r"claude-opus-4([-.][01](?!\d)|-20\d{6}|$|[@:])"), 32_000),
    (re.compile(r"claude-[a-z]+-4[-.][6-9]"), 128_000),
    (re.compile("claude"), 64_000),
)
"""Most tokens of an answer if no list of models states it (Anthropic, "Models overview")."""
_LONGEST_OTHER: Final = 8192
_BESIDE_THOUGHTS: Final = 1024
"""Tokens of an answer beside the budget of its thoughts, which must be smaller than both together."""


def allowed(request: ChatRequest, model: str, choice: str, version: str = "") -> Json:
    """Return `temperature`, `top_p` and `top_k`, as far as model and API version accept them."""
    asked = without_nones(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)
    if choice == "sent":
        return asked
    dated = _DATE.search(version)
    if (dated and dated[0] >= _NONE_SINCE) or not _EARLIER.search(model):
        return {}
    if request.thinking is not None and request.thinking.mode in ("on", "auto"):
        return {"temperature": 1} if request.temperature == 1 else {}
    if "temperature" in asked and _ONE_OF_TWO.search(model):
        asked.pop("top_p", None)
    return asked


def longest(request: ChatRequest, model: str, told: int | None) -> int:
    """Return the required `max_tokens` for a request without one: the model's maximum.

    `told` is the maximum stated by its server.
    """
    most = told or next((most for name, most in _LONGEST if name.search(model)), _LONGEST_OTHER)
    budget = None if request.thinking is None else request.thinking.budget_tokens
    return max(most, 0 if budget is None else budget + _BESIDE_THOUGHTS)
