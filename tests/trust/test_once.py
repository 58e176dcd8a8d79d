"""Values that follow from a document, and do not follow it into a changed copy."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.trust.once import Once


class Square(msgspec.Struct, frozen=True, dict=True):
    """A number, and what follows from it."""

    side: int
    asked: list[int] = []

    @Once
    def area(self) -> int:
        """The side, twice."""
        self.asked.append(self.side)
        return self.side * self.side


@pytest.mark.req("TRUST-11")
def test_a_value_is_computed_once_and_never_for_another() -> None:
    square = Square(3, [])
    assert [square.area, square.area] == [9, 9]
    larger = msgspec.structs.replace(square, side=4)
    assert [larger.area, larger.area, square.area] == [16, 16, 9]
    assert square.asked == [3, 4]
    Square.area.put(larger, 17)
    assert larger.area == 17
    assert Square.area.__doc__ == "The side, twice."
    assert msgspec.to_builtins(square) == {"side": 3, "asked": [3, 4]}
