"""Estimation of tokens: characters / 3.5, or / 2 in Chinese, Japanese and Korean.

It is used for models that do not count, and for the passages of documents.

See: docs/models.md#conversations.
"""

from __future__ import annotations

import math
import re
from typing import Final

_LATIN: Final = 3.5
_CJK: Final = 2.0
_WIDE: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff00-\uffef\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)


CHARACTERS_THAT_FIT: Final = 3
"""Characters per token to which a text is cut where more tokens than a limit would be an error."""


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text."""
    return weight_tokens(text_weight(text))


def text_weight(text: str) -> int:
    """Return the length of a text, converted to characters of Latin script."""
    if text.isascii():
        return len(text)
    wide = sum(map(len, _WIDE.findall(text)))
    return len(text) + round(wide * (_LATIN / _CJK - 1))


def weight_tokens(characters: int) -> int:
    """Return the estimated tokens of that many characters of Latin script (`weight`)."""
    return math.ceil(characters / _LATIN)
