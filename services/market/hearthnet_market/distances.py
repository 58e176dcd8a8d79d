"""Distances to the places of posts. Pure.

See: docs/market.md#places.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError

_EARTH_KM: Final = 6371.0
DECIMALS: Final = 3
"""Maximum of decimals of the degrees of a post: some 100 m."""
SQL: Final = "distance_km(post.location, ?, ?)"


class Position(msgspec.Struct, frozen=True):
    """A position in degrees: of a post, or from which distances are measured."""

    lat: float
    lng: float


_position: Final = msgspec.json.Decoder(Position)


def km_between(one: Position, other: Position) -> float:
    """Return the length in km of the shortest way over the globe between two positions."""
    here, there = math.radians(one.lat), math.radians(other.lat)
    half = math.sin((there - here) / 2) ** 2
    half += math.cos(here) * math.cos(there) * math.sin(math.radians(other.lng - one.lng) / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(min(1.0, half)))


def add_function(database: sqlite3.Connection) -> None:
    """Make the function of `SQL` known: the distance of a location, as the view has it, or NULL."""
    database.create_function("distance_km", 3, _distance, deterministic=True)


def check_rough(location: dict[str, Any], path: str) -> None:
    """Check that a location says no more than some 100 m: at which door a ladder stands is private.

    Rounding it here would be too late, since every home gets the request as its author signed it.

    Raises:
        HearthNetError: `bad_request` for more than `DECIMALS` decimals of a degree.
    """
    for name in ("lat", "lng"):
        if name in location and round(location[name], DECIMALS) != location[name]:
            raise HearthNetError(
                "bad_request",
                f"a place has at most {DECIMALS} decimals of a degree, some 100 m; round it before the call",
                details={"path": f"{path}/location/{name}", "rule": "decimals", "limit": DECIMALS},
            )


def with_km(posts: Iterable[dict[str, Any]], near: Position | None) -> list[dict[str, Any]]:
    """Return posts, those with a place with their distance `km` from `near`."""
    return [_measured(post, near) if near and post["location"] else post for post in posts]


def _measured(post: dict[str, Any], near: Position) -> dict[str, Any]:
    return {**post, "km": round(km_between(near, msgspec.convert(post["location"], Position)), 1)}


def _distance(location: str | None, lat: float, lng: float) -> float | None:
    return None if location is None else km_between(Position(lat, lng), _position.decode(location))
