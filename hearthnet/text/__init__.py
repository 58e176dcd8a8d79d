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
            "hearthnet.text.detect": (
                "detect_language=detect detected_language=detected detector_available=available"
            ),
            "hearthnet.text.language_codes": (
                "LANGUAGE_NAMES=NAMES check_language=check language_code=code_of"
            ),
            "hearthnet.text.splitting": "sentences text_parts=parts",
            "hearthnet.text.tokens": "CHARACTERS_THAT_FIT estimate_tokens text_weight weight_tokens",
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
