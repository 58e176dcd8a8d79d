"""The contract of one capability: its request, reply, errors and rules.

See: docs/contracts.md#the-parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from hearthnet.contracts.match import MatchRule, fits, matcher
from hearthnet.contracts.namespaces import is_derived, is_home_only, is_provider_defined
from hearthnet.contracts.schema import SchemaCheck, compile_schema
from hearthnet.contracts.supplied_schema import Bounds
from hearthnet.contracts.tool_schema import Flat
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import Capability, parse_capability
from hearthnet.core.errors import HearthNetError

Schema = dict[str, Any]
MAX_REQUEST_BYTES: Final = 64 * 1024
"""Maximum size of a request's body, unless the contract states another."""
_MAX_SUPPLIED_REQUEST_BYTES: Final = 1024 * 1024
"""The same for a contract that a neighbour may have supplied: as much as the gateway takes in a request."""
_MAX_HOME_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""The same for a package's capability, which this node alone calls: a message of nats-server."""


class Contract(msgspec.Struct, frozen=True, eq=False, dict=True, kw_only=True, forbid_unknown_fields=True):
    """The contract of one capability version: its file, with shared definitions expanded."""

    name: str
    version: str
    stability: Literal["experimental", "beta", "stable", "deprecated"]
    summary: str
    """One line, for people and for models that choose among tools."""
    trust_required: str
    """unknown, invited, member, trusted, anchor, self, or `custom:<rule>`.

    See: docs/protocol/community.md#levels.
    """
    side_effects: bool
    idempotent: Literal["pure", "client_id", "natural", "no"]
    """pure: reads only; client_id: once per caller and client_id; natural: once per object named in the call;
    no.
    """
    timeout_seconds: int
    max_concurrent: int
    request_schema: Schema
    response_schema: Schema
    stream_schema: dict[str, Schema] | None
    """Schema of each frame's data, by event; None if the capability does not stream."""
    offer_params: Schema
    """Schema of the params in an offer."""
    match: dict[str, MatchRule]
    errors: list[str]
    """Wire codes to expect besides those that every call may return."""
    examples: list[dict[str, Any]]
    effect_scope: Literal["community", "node"] | None = None
    approval: Literal["any", "own_key"] | None = None
    max_request_bytes: Annotated[int, msgspec.Meta(ge=1, le=_MAX_HOME_REQUEST_BYTES)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    """Maximum size of the request's body; left out of a contract on the wire where it is not stated."""

    @cached_property
    def capability(self) -> Capability:
        """Name and version."""
        return parse_capability(f"{self.name}@{self.version}")

    @cached_property
    def id(self) -> str:
        """`name@major.minor`."""
        return f"{self.name}@{self.version}"

    @property
    def is_home_only(self) -> bool:
        """Whether its name is outside the namespaces of this project, and called at its own home alone."""
        return is_home_only(self.name)

    @property
    def is_shared_effect(self) -> bool:
        """Whether its effect is on a log that all nodes of the community merge, whichever of them begins it.

        A provider's own contract does not decide that.
        """
        return self.effect_scope == "community" and not is_provider_defined(self.name)

    @cached_property
    def defaults_to_own_node(self) -> bool:
        """Whether it is called at the caller's own node unless the call names another.

        Any member can offer what providers define, and effects on one home.
        """
        is_single_effect = self.side_effects and not self.is_shared_effect
        return is_single_effect or is_provider_defined(self.name)

    @property
    def major(self) -> int:
        """The major version, on which callers and providers must agree."""
        return self.capability.major

    @property
    def minor(self) -> int:
        """The minor version; an offer answers requests for its own and lower ones."""
        return self.capability.minor

    @cached_property
    def schema_hash(self) -> str:
        """The hash of all parts seen on the wire; compared within one name@X.Y only.

        See: docs/protocol/discovery.md#matching.
        """
        parts = ("name", "version", "request_schema", "response_schema", "stream_schema")
        return digest({part: getattr(self, part) for part in parts})

    def schemas(self) -> list[Schema]:
        """Return the schemas of request, reply, offer and frames."""
        streams = (self.stream_schema or {}).values()
        return [self.request_schema, self.response_schema, self.offer_params, *streams]

    @cached_property
    def request_limit(self) -> int:
        """The maximum size of a request's body as sent, in bytes, unknown fields included."""
        if self.max_request_bytes is not msgspec.UNSET:
            return self.max_request_bytes
        if is_derived(self.name):
            return _MAX_SUPPLIED_REQUEST_BYTES
        return _MAX_HOME_REQUEST_BYTES if self.is_home_only else MAX_REQUEST_BYTES

    def check_request_size(self, size: int) -> None:
        """Check that a request's body of `size` bytes may be sent and read.

        Raises:
            HearthNetError: `payload_too_large` with the limit if it has too many.
        """
        if size > self.request_limit:
            raise HearthNetError(
                "payload_too_large",
                f"the body has {size} bytes, and {self.id} takes {self.request_limit}; send less in one call",
                details={"limit": self.request_limit},
            )

    def _compiled(self, schema: Schema) -> SchemaCheck:
        """Compile one of the schemas; those that a neighbour may have supplied are bounded."""
        if not is_derived(self.name):
            return compile_schema(schema)
        bounds = Bounds()
        bounds.check(schema)
        return compile_schema(schema, bounds.weight)

    def check_request(self, body: Any) -> None:
        """Check that `body` is a request; unknown fields are allowed.

        Raises:
            HearthNetError: `bad_request` naming path and rule if it is not.
        """
        self._check(self._request, body)

    def check_reply(self, body: Any) -> None:
        """Check that `body` is a reply; unknown fields are allowed.

        Raises:
            HearthNetError: `bad_request` naming path and rule if it is not.
        """
        self._check(self._response, body)

    def check_offer(self, params: Any) -> None:
        """Check that an offer may carry `params`.

        Raises:
            HearthNetError: `bad_request` naming path and rule if it may not.
        """
        self._check(self._offer, params)

    def check_frame(self, event: str, data: Any) -> None:
        """Check that `event` belongs to this stream and `data` is valid for it.

        A receiver skips unknown events without this check (`has_event`).

        See: docs/protocol/README.md#versioning.

        Raises:
            HearthNetError: `bad_request` for an unknown event and invalid data.
        """
        if not self.has_event(event):
            raise HearthNetError(
                "bad_request", f"{self.id} has no frame {event!r}", details={"path": "/event", "rule": "enum"}
            )
        self._check(self._frames[event], data)

    def has_event(self, event: str) -> bool:
        """Return whether frames of this event belong to the stream."""
        return event in self._frames

    def with_defaults(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a valid request with absent fields set to their defaults.

        Defaults inside arrays are not set.
        """
        return self._defaults.fill(body)

    def fits(self, body: Mapping[str, Any], offer_params: Mapping[str, Any]) -> bool:
        """Return whether an offer with these params can answer this valid request."""
        return fits(self.match, body, offer_params)

    def matcher(self, offer_params: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
        """Return `fits` for one offer, prepared for many requests."""
        return matcher(self.match, offer_params)

    def tool_schema(self, bound_params: Mapping[str, Any] | None, hidden: frozenset[str]) -> Schema:
        """Return one flat closed schema of the fields that are neither bound nor hidden.

        These are the fields that a model fills in.
        """
        return self._flat.tool_schema(hidden, bound_params or ())

    def split_arguments(
        self, flat: Mapping[str, Any], bound_params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return a model's flat arguments and the bound values as `{"params", "input"}`.

        The result is not checked.
        """
        return self._flat.split(flat, bound_params or {})

    def _check(self, check: SchemaCheck, value: Any) -> None:
        if check.accepts(value):
            return
        problems = check.errors(value)
        path, rule, message = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        where = f"{self.id}: {path}" if path else self.id
        raise HearthNetError("bad_request", f"{where}: {message}{more}", details={"path": path, "rule": rule})

    @cached_property
    def _request(self) -> SchemaCheck:
        return self._compiled(self.request_schema)

    @cached_property
    def _response(self) -> SchemaCheck:
        return self._compiled(self.response_schema)

    @cached_property
    def _offer(self) -> SchemaCheck:
        return self._compiled(self.offer_params)

    @cached_property
    def _frames(self) -> dict[str, SchemaCheck]:
        return {event: self._compiled(schema) for event, schema in (self.stream_schema or {}).items()}

    @cached_property
    def _defaults(self) -> _Defaults:
        return _Defaults.of(self.request_schema)

    @cached_property
    def _flat(self) -> Flat:
        return Flat(self.id, self.request_schema)


class _Defaults(NamedTuple):
    """The defaults of one object schema, collected once."""

    values: dict[str, Any]
    nested: dict[str, _Defaults]
    nests: bool
    """True if a default is a list or an object, of which each request needs its own copy."""

    @classmethod
    def of(cls, schema: Schema) -> _Defaults:
        # A property's schema may be `true` or `false`, which have no defaults.
        declared = schema.get("properties", {})
        properties = {name: inner for name, inner in declared.items() if isinstance(inner, dict)}
        nested = {name: cls.of(inner) for name, inner in properties.items() if "properties" in inner}
        values = {name: inner["default"] for name, inner in properties.items() if "default" in inner}
        return cls(
            values,
            {name: inner for name, inner in nested.items() if inner.values or inner.nested},
            any(isinstance(value, list | dict) for value in values.values()),
        )

    def fill(self, value: Mapping[str, Any]) -> dict[str, Any]:
        filled = {**(deepcopy(self.values) if self.nests else self.values), **value}
        for name, inner in self.nested.items():
            if isinstance(filled.get(name), dict):
                filled[name] = inner.fill(filled[name])
        return filled
