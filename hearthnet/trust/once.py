"""Values that follow from a frozen document, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class Once(Generic[Value]):
    """As `functools.cached_property`, for a msgspec struct with `dict=True`.

    `msgspec.structs.replace` hands the instance's dictionary on to the changed copy, which would then claim
    what followed from the original. So each value is kept together with whose it is; the original lives while
    its copy is made, hence the two never have one id.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"once {name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Once[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> Once[Value] | Value:
        if instance is None:
            return self
        held: tuple[int, Value] | None = instance.__dict__.get(self._name)
        if held is not None and held[0] == id(instance):
            return held[1]
        value = self._compute(instance)
        self.put(instance, value)
        return value

    def put(self, instance: object, value: Value) -> None:
        """Notes the value of `instance`, where it is known already."""
        instance.__dict__[self._name] = id(instance), value
