"""How tokens may be drawn: what each generation of Claude still lets a caller choose.

Since Opus 4.7 a temperature is refused, and so are top_p and top_k; models of 4.5 and 4.6 refuse temperature
and top_p together; and whichever thinks takes no temperature but 1. What the contract fills in by itself
must not make a request fail, so it is left out here where it would.
"""

from __future__ import annotations

import re
from typing import Final

from hearthnet_llm.request import ChatRequest
from hearthnet_llm.vendors.reading import without_nones
from hearthnet_llm.vendors.wire import Json

CHOICES: Final = ("auto", "sent")
"""By the model, or as it is asked for."""
_EARLIER: Final = re.compile(r"claude-(v?[123]|instant|[a-z]+-4(-[0-6](?!\d)|-20\d{6}|$|[@:]))")
_TOP_P: Final = 0.95
"""The contract's default."""


def allowed(request: ChatRequest, model: str, choice: str) -> Json:
    """`temperature`, `top_p` and `top_k`, as far as the model takes them."""
    asked = without_nones(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)
    if choice == "sent":
        return asked
    if not _EARLIER.search(model):
        return {}
    if request.thinking is not None and request.thinking.mode in ("on", "auto"):
        return {"temperature": 1} if request.temperature == 1 else {}
    if "temperature" in asked and asked.get("top_p") == _TOP_P:
        del asked["top_p"]
    return asked
