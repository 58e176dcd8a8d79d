"""Language detection, splitting of text and estimates of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.text.detect import available as detector_available
    from hearthnet.text.detect import detect as detect_language
    from hearthnet.text.detect import detected as detected_language
    from hearthnet.text.language_codes import NAMES as LANGUAGE_NAMES
    from hearthnet.text.language_codes import check as check_language
    from hearthnet.text.language_codes import code_of as language_code
    from hearthnet.text.splitting import parts as text_parts
    from hearthnet.text.splitting import sentences
    from hearthnet.text.tokens import CHARACTERS_THAT_FIT, estimate_tokens, text_weight, weight_tokens
else:
    __getattr__ = lazy(
        __name__,
        {
            "CHARACTERS_THAT_FIT": "hearthnet.text.tokens",
            "LANGUAGE_NAMES": "hearthnet.text.language_codes:NAMES",
            "check_language": "hearthnet.text.language_codes:check",
            "detect_language": "hearthnet.text.detect:detect",
            "detected_language": "hearthnet.text.detect:detected",
            "detector_available": "hearthnet.text.detect:available",
            "estimate_tokens": "hearthnet.text.tokens",
            "language_code": "hearthnet.text.language_codes:code_of",
            "sentences": "hearthnet.text.splitting",
            "text_parts": "hearthnet.text.splitting:parts",
            "text_weight": "hearthnet.text.tokens",
            "weight_tokens": "hearthnet.text.tokens",
        },
    )

__all__ = [
    "CHARACTERS_THAT_FIT",
    "LANGUAGE_NAMES",
    "check_language",
    "detect_language",
    "detected_language",
    "detector_available",
    "estimate_tokens",
    "language_code",
    "sentences",
    "text_parts",
    "text_weight",
    "weight_tokens",
]
