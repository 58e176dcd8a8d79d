"""In which order passages that were found are shown: by words, headings and meaning. Pure functions.

Each kind of evidence is brought to 0..1 within the query, then they are added (docs/decisions/0133):

    words      BM25, as a share of the best passage's
    meaning    the cosine, between that of the 200th nearest passage and that of the nearest
    heading    how much of a heading the query is, and of it that heading: weighed Dice, to the power 1.5

Meaning counts twice as much as words, and a heading in the query's own words as much as all else together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hearthnet_rag.vectors import Near

MEANING: Final = 2.0
_STEEPNESS: Final = 1.5
_BACKGROUND: Final = 200
"""So many of the nearest passages span the scale of meaning; further ones mean something else."""
_NARROWEST: Final = 0.2
"""Where all are about equally near, as in a small corpus, what little sets them apart is not stretched."""


class Candidate(msgspec.Struct, frozen=True):
    """A passage that was found. `score` is its BM25, later from 0 to 1; `heading` is a heading match."""

    chunk: int
    document: int
    score: float
    heading: float = 0.0


def by_words(found: Sequence[Candidate]) -> list[Candidate]:
    """`found` in order, scores from 0 to 1."""
    shares = _shares(found)
    return _best((one, (shares[one.chunk] + one.heading) / 2) for one in found)


def by_both(
    found: Sequence[Candidate], nearest: Sequence[Near], meanings: Mapping[int, float], seen: Collection[int]
) -> list[Candidate]:
    """What was `found` by words and what is `nearest` in one order, scores from 0 to 1; see `meaning`.

    Only the passages `seen` have vectors. Of another one, in a language that the model does not know or not
    come to yet, its words stand for both: it loses nothing to those that have one.
    """
    shares = _shares(found)
    others = [Candidate(near.chunk, near.document, 0.0) for near in nearest if near.chunk not in shares]

    def total(one: Candidate) -> float:
        share = shares.get(one.chunk, 0.0)
        meant = meanings.get(one.chunk, 0.0 if one.chunk in seen else share)
        return (share + MEANING * meant + (1 + MEANING) * one.heading) / (2 * (1 + MEANING))

    return _best((one, total(one)) for one in (*found, *others))


def meaning(nearest: Sequence[Near]) -> dict[int, float]:
    """How near each of `nearest` (the nearest first) is, from 0 to 1."""
    if not nearest:
        return {}
    highest, lowest = nearest[0].score, nearest[:_BACKGROUND][-1].score
    span = max(highest - lowest, _NARROWEST)
    return {near.chunk: max(0.0, 1 - (highest - near.score) / span) for near in nearest}


def heading_match(asked: Collection[str], heading: Collection[str], weights: Mapping[str, float]) -> float:
    """How well a heading, as its words, is what is `asked`: from 0 to 1, 1 where they are the same words.

    `weights` says of each word of both what it counts: the more, the rarer it is.
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
