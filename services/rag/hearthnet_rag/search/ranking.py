"""Ranking of found passages by words, headings and meaning. Pure functions.

Each kind of evidence is scaled to 0..1 within the query, then they are added (docs/decisions/0133):

    words      BM25, relative to the best passage's
    meaning    the cosine, scaled between that of the 200th nearest passage and that of the nearest
    heading    the mutual overlap of query and heading: weighed Dice, to the power 1.5

Meaning counts twice as much as words, and a heading in the query's own words as much as both together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hearthnet_rag.index.vectors import Neighbor

MEANING: Final = 2.0
_STEEPNESS: Final = 1.5
_BACKGROUND: Final = 200
"""Number of the nearest passages that span the scale of meaning; further ones count as unrelated."""
_NARROWEST: Final = 0.2
"""Smallest span of the scale of meaning: if all passages are about equally near, as in a small corpus, their
small differences are not stretched.
"""


class Candidate(Neighbor, frozen=True):
    """A found passage; `score` is its BM25, later from 0 to 1; `heading` is its heading match."""

    heading: float = 0.0


def by_words(found: Sequence[Candidate]) -> list[Candidate]:
    """Return `found` in order, with scores from 0 to 1."""
    shares = _shares(found)
    return _best((one, (shares[one.chunk] + one.heading) / 2) for one in found)


def by_both(
    found: Sequence[Candidate],
    nearest: Sequence[Neighbor],
    meanings: Mapping[int, float],
    seen: Collection[int],
) -> list[Candidate]:
    """Return passages found by words and by meaning in one order, with scores from 0 to 1.

    `meanings` comes from `meaning`. Only the passages in `seen` have vectors. For any other one, in a
    language that the model does not know or not embedded yet, its words count for both, so that it is not
    disadvantaged.
    """
    shares = _shares(found)
    others = [Candidate(near.chunk, near.document, 0.0) for near in nearest if near.chunk not in shares]

    def total(one: Candidate) -> float:
        share = shares.get(one.chunk, 0.0)
        meant = meanings.get(one.chunk, 0.0 if one.chunk in seen else share)
        return (share + MEANING * meant + (1 + MEANING) * one.heading) / (2 * (1 + MEANING))

    return _best((one, total(one)) for one in (*found, *others))


def similarity(nearest: Sequence[Neighbor]) -> dict[int, float]:
    """Return the nearness, from 0 to 1, of passages in `nearest` (the nearest first)."""
    if not nearest:
        return {}
    highest, lowest = nearest[0].score, nearest[:_BACKGROUND][-1].score
    span = max(highest - lowest, _NARROWEST)
    return {near.chunk: max(0.0, 1 - (highest - near.score) / span) for near in nearest}


def heading_match(asked: Collection[str], heading: Collection[str], weights: Mapping[str, float]) -> float:
    """Return the agreement of a heading's words with `asked`, 1 for the same words.

    `weights` gives the weight of each word of both; rarer words weigh more.
    """
    common = math.fsum(weights[word] for word in heading if word in asked)
    both = math.fsum(weights[word] for word in (*asked, *heading))
    return math.pow(2 * common / both, _STEEPNESS)


def _shares(found: Sequence[Candidate]) -> Mapping[int, float]:
    highest = max((one.score for one in found), default=0.0) or 1.0
    return {one.chunk: one.score / highest for one in found}


def _best(scored: Iterable[tuple[Candidate, float]]) -> list[Candidate]:
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0].chunk))
    return [msgspec.structs.replace(one, score=score) for one, score in ordered]
