"""The matching of requests and offers, as data: the `match` table of a contract.

A key names a field of the request (`params.model`, `input.from`); its rule relates the value to the offer's
params. A field that is absent from the request fits every offer, as does one of a type that the rule does not
apply to, such as a text for a number: the request schema reports that. For the rule `pair` there are
suggestions near a pair that no provider offers.

See: docs/protocol/discovery.md#matching.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

RuleName = Literal["equal", "in", "at_most", "subset", "pair"]


class MatchRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a `match` table."""

    rule: RuleName
    offer: str
    """The offer's param that is compared."""
    also: str | None = None
    """A second param, whose values count as well."""
    after: str | None = None
    """For `pair`: the field of the request that is first in a pair whose second is this one."""
    whatever: str | None = None
    """For `pair`: the value of that field that fits all pairs."""

    def offered(self, offer_params: Mapping[str, Any]) -> list[Any]:
        """Return the values that an offer names, with lists flattened."""
        values: list[Any] = []
        for name in (self.offer, self.also):
            value = offer_params.get(name) if name is not None else None
            values.extend(value if isinstance(value, list) else [] if value is None else [value])
        return values


def fits(match: Mapping[str, MatchRule], body: Mapping[str, Any], offer_params: Mapping[str, Any]) -> bool:
    """Return whether an offer with `offer_params` can answer the request `body`."""
    for field, rule in match.items():
        if rule.rule == "pair":
            if not _in_a_pair(field, rule, rule.offered(offer_params), body):
                return False
            continue
        section, _, name = field.partition(".")
        wanted = _value(body, section, name)
        if wanted is not None and not _RULES[rule.rule](wanted, rule.offered(offer_params)):
            return False
    return True


def matched_fields(match: Mapping[str, MatchRule], offer_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an offer by the fields of a request, named as in the constraints of a token.

    A field for which the offer has no value is left out: no request that has it comes to this offer.
    """
    values = {field.removeprefix("params."): offer_params.get(rule.offer) for field, rule in match.items()}
    return {field: value for field, value in values.items() if value is not None}


def matcher(
    match: Mapping[str, MatchRule], offer_params: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], bool]:
    """Return `fits` for one offer, prepared for many requests by flattening its values once."""
    plain = [
        (*field.partition(".")[::2], _RULES[rule.rule], rule.offered(offer_params))
        for field, rule in match.items()
        if rule.rule != "pair"
    ]
    paired = [
        (field, rule, rule.offered(offer_params)) for field, rule in match.items() if rule.rule == "pair"
    ]

    def suits(body: Mapping[str, Any]) -> bool:
        for section, name, holds, offered in plain:
            wanted = _value(body, section, name)
            if wanted is not None and not holds(wanted, offered):
                return False
        return all(_in_a_pair(field, rule, pairs, body) for field, rule, pairs in paired)

    return suits


def value_at(field: str, body: Mapping[str, Any]) -> Any:
    """Return the value of a request at `params.name` or `input.name`; None if absent."""
    section, _, name = field.partition(".")
    return _value(body, section, name)


def _value(body: Mapping[str, Any], section: str, name: str) -> Any:
    """Return the field's value; None if it is absent or its section is not an object."""
    fields = body.get(section)
    return fields.get(name) if isinstance(fields, Mapping) else None


def _in_a_pair(field: str, rule: MatchRule, pairs: list[Any], body: Mapping[str, Any]) -> bool:
    second, first = value_at(field, body), value_at(rule.after or "", body)
    if first == rule.whatever:
        first = None
    return any(
        isinstance(pair, list) and len(pair) == 2 and first in (None, pair[0]) and second in (None, pair[1])
        for pair in pairs
    )


_RULES: Final[dict[str, Callable[[Any, list[Any]], bool]]] = {
    "equal": lambda wanted, offered: offered == [wanted],
    "in": lambda wanted, offered: wanted in offered,
    "at_most": lambda wanted, offered: (
        not isinstance(wanted, int | float)
        or any(isinstance(most, int | float) and wanted <= most for most in offered)
    ),
    "subset": lambda wanted, offered: (
        not isinstance(wanted, list | tuple) or all(item in offered for item in wanted)
    ),
}


_MAX_NAMES: Final = 12
Pair = tuple[str, str]


def pairs_in(values: Iterable[Any]) -> set[Pair]:
    """Return the well-formed pairs in the values of offers."""
    return {
        (value[0], value[1])
        for value in values
        if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
    }


def nearest(first: str | None, second: str, pairs: Collection[Pair]) -> tuple[str, dict[str, list[str]]]:
    """Describe the pairs that begin with `first` or end with `second`, and two-step ways.

    Returns a text and the same as data. `first` None means any.
    """
    leads_to = sorted({b for a, b in pairs if first in (None, a)})
    comes_from = sorted({a for a, b in pairs if b == second})
    through = [] if first in (None, second) else [step for step in leads_to if step in comes_from]
    words = [
        f"from {first or 'any'} into: {_listed(leads_to)}",
        f"into {second} from: {_listed(comes_from)}",
    ]
    if through:
        words.append(f"in two steps by way of: {_listed(through)}")
    return "; ".join(words), {"from": leads_to, "to": comes_from, "through": through}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (", ".join(names[:_MAX_NAMES]) or "nothing") + more
