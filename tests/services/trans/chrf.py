"""chrF, the likeness of two texts by their character n-grams of 1 to 6 (Popović 2015), 0 to 100."""

from __future__ import annotations

from collections import Counter

_ORDER = 6
_BETA = 2.0


def chrf(texts: list[str], references: list[str]) -> float:
    """Over a whole set of sentences, as `sacrebleu` counts it: white space left out."""
    scores = []
    for order in range(1, _ORDER + 1):
        pairs = [(_grams(a, order), _grams(b, order)) for a, b in zip(texts, references, strict=True)]
        said = sum(a.total() for a, _ in pairs)
        wanted = sum(b.total() for _, b in pairs)
        common = sum((a & b).total() for a, b in pairs)
        if said and wanted:
            precision, recall = common / said, common / wanted
            below = _BETA**2 * precision + recall
            scores.append((1 + _BETA**2) * precision * recall / below if below else 0.0)
    return 100 * sum(scores) / len(scores) if scores else 0.0


def _grams(text: str, order: int) -> Counter[str]:
    letters = "".join(text.split())
    return Counter(letters[place : place + order] for place in range(len(letters) - order + 1))
