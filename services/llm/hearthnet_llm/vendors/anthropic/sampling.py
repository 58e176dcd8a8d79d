"""How tokens may be drawn: what each generation of Claude still lets a caller choose.

Since Opus 4.7 a temperature is refused, and so are top_p and top_k; models of 4.5 and 4.6 refuse temperature
and top_p together; whichever thinks takes no temperature but 1; and from version 2026-10-21 of the API on
none of them is taken at all. What the contract fills in by itself must not make a request fail, so it is left
out here where it would. Other models behind a server of this wire take what is asked ("sent").
"""

from __future__ import annotations

import re
from typing import Final

from hearthnet_llm.request import ChatRequest
from hearthnet_llm.vendors.reading import without_nones
from hearthnet_llm.vendors.wire import Json

CHOICES: Final = ("auto", "sent")
"""By the model, or as it is asked for."""
_EARLIER: Final = re.compile(r"claude-(v?[123]|instant|[a-z]+-4([-.][0-6](?!\d)|-20\d{6}|$|[@:]))")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d$")
_NONE_SINCE: Final = "2026-10-21"
"""The version of the API that takes none of them."""
_TOP_P: Final = 0.95
"""The contract's default."""


def allowed(request: ChatRequest, model: str, choice: str, version: str = "") -> Json:
    """`temperature`, `top_p` and `top_k`, as far as the model takes them in that version of the API."""
    asked = without_nones(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)
    if choice == "sent":
        return asked
    dated = _DATE.search(version)
    if (dated and dated[0] >= _NONE_SINCE) or not _EARLIER.search(model):
        return {}
    if request.thinking is not None and request.thinking.mode in ("on", "auto"):
        return {"temperature": 1} if request.temperature == 1 else {}
    if "temperature" in asked and asked.get("top_p") == _TOP_P:
        del asked["top_p"]
    return asked
