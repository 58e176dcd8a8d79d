"""The family of errors that may cross a module or process boundary.

    HearthNetError
      code      one of CODES, the closed set of wire codes (docs/protocol/errors.md#codes)
      message   one line for a person: the fault and its remedy
      details   where the fault is: path, rule, limit, nearest names ...

The code says whose fault it is: the caller's (`MINE`), the provider's or the mesh's (`PEER`), or that of
time, load and distance (`WORLD`). The class says what a caller can do about it, and follows from the code:
`HearthNetError("not_found", ...)` is a `NotFound`, here and read from the wire. Any other exception that
reaches a boundary is logged in full under an id and crosses as `internal_error` with that id alone.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypedDict, Unpack

MINE: Final = frozenset(
    {
        "bad_request",
        "schema_mismatch",
        "invalid_signature",
        "unauthorized",
        "revoked",
        "expired",
        "payload_too_large",
        "token_invalid",
        "token_expired",
        "token_scope_insufficient",
        "token_revoked",
        "not_federated",
    }
)
PEER: Final = frozenset(
    {"not_found", "not_implemented", "internal_error", "thread_missing", "outcome_unknown"}
)
WORLD: Final = frozenset({"timeout", "partition", "capacity_exceeded", "rate_limited"})
CODES: Final = MINE | PEER | WORLD

CONTEXT_LENGTH: Final = "context_length"
"""`details.rule` of a `bad_request` whose conversation is longer than the model's context."""

LONGEST_MESSAGE: Final = 2_000
"""Maximum length of a message on the wire, in characters."""

OK: Final = 0
OTHER: Final = 1
USAGE: Final = 2
NOT_RUNNING: Final = 3
REFUSED: Final = 4
NOT_FOUND: Final = 5
TIMED_OUT: Final = 6
UNCONFIRMED: Final = 7
FULL: Final = 8
INTERRUPTED: Final = 130

_REFUSALS: Final = MINE - {"bad_request", "schema_mismatch", "payload_too_large"}
_EXIT_CODES: Final[dict[str, int]] = {
    **dict.fromkeys(_REFUSALS, REFUSED),
    "bad_request": USAGE,
    "not_found": NOT_FOUND,
    "schema_mismatch": NOT_FOUND,
    "thread_missing": NOT_FOUND,
    "timeout": TIMED_OUT,
    "partition": TIMED_OUT,
    "capacity_exceeded": FULL,
    "rate_limited": FULL,
}


def exit_code(code: str) -> int:
    """Return the exit status of a command that ended with the wire code `code`.

    See: docs/protocol/errors.md#mapping-to-exit-codes.
    """
    return _EXIT_CODES.get(code, OTHER)


class _ClassByCode(type):
    """The metaclass of `HearthNetError`, by which an error has the class of its code wherever it is made."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if cls is not HearthNetError:
            return super().__call__(*arguments, **options)
        code = options.pop("code") if "code" in options else arguments[0] if arguments else ""
        if code not in _CLASSES:
            raise ValueError(f"{code!r} is not a wire code")
        return _CLASSES[code](*arguments[1:], code=code, **options)


class HearthNetError(Exception, metaclass=_ClassByCode):
    """An error with a wire code, made as an instance of the subclass that has the code in `codes`.

    `rule` is added to `details`. `retry_after_ms` is set if waiting helps; `alt` names similar capabilities,
    corpora or tools, one of which the caller may have meant; `exit_status` overrides the exit status that
    follows from `code`, for conditions that only a shell distinguishes.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    """The wire codes of the class, that of `raise` without a code first."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        rule: str = "",
        details: dict[str, Any] | None = None,
        retry_after_ms: int | None = None,
        alt: list[str] | None = None,
        exit_status: int | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is not a wire code")
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = ({"rule": rule} if rule else {}) | (details or {})
        self.retry_after_ms = retry_after_ms
        self.alt = alt or []
        self.exit_status = exit_code(code) if exit_status is None else exit_status
        self.signed_by = self.entry = ""
        """Node and call of the signed frame that brought this error, empty without one; not on the wire."""

    @property
    def rule(self) -> str:
        """Which check refused, or which way it is unavailable: `details["rule"]`; empty if absent."""
        return str(self.details.get("rule", ""))

    def to_body(self) -> dict[str, Any]:
        """Return the error object of the wire (docs/protocol/errors.md#error-object).

        Its message is one line of bounded length without hidden characters, since it may quote input.
        """
        body: dict[str, Any] = {"error": self.code, "message": _one_line(self.message)}
        if self.details:
            body["details"] = self.details
        if self.retry_after_ms is not None:
            body["retry_after_ms"] = self.retry_after_ms
        if self.alt:
            body["alt_capabilities"] = self.alt
        return body

    @staticmethod
    def from_body(body: dict[str, Any]) -> HearthNetError:
        """Return the error that `body` describes.

        An unknown code becomes `internal_error`, and the message names it.
        """
        code, message = str(body.get("error", "")), str(body.get("message", "no message"))
        if code not in CODES:
            code, message = "internal_error", f"{message} (unknown code {code!r})"
        details, alt, retry = body.get("details"), body.get("alt_capabilities"), body.get("retry_after_ms")
        return HearthNetError(
            code,
            message,
            details=details if isinstance(details, dict) else None,
            alt=[str(name) for name in alt] if isinstance(alt, list) else None,
            retry_after_ms=retry if type(retry) is int and retry >= 0 else None,
        )


class _Options(TypedDict, total=False):
    rule: str
    details: dict[str, Any] | None
    retry_after_ms: int | None
    alt: list[str] | None
    exit_status: int | None


class _Coded(HearthNetError):
    """An error that is raised by its class: `NotFound("there is no corpus 'a'; see: hearthnet caps")`."""

    def __init__(self, message: str, *, code: str = "", **options: Unpack[_Options]) -> None:
        if code and code not in self.codes:
            raise ValueError(f"{code!r} is no code of {type(self).__name__}")
        super().__init__(code or self.codes[0], message, **options)


class InvalidRequest(_Coded):
    """The request is not allowed by the contract: correct it; repeating it as it is never helps."""

    codes = ("bad_request", "schema_mismatch", "payload_too_large")


class Unauthorized(_Coded):
    """The caller may not do this: it needs another level, token or approval."""

    codes: ClassVar[tuple[str, ...]] = (
        "unauthorized",
        "invalid_signature",
        "revoked",
        "token_invalid",
        "token_scope_insufficient",
        "token_revoked",
        "not_federated",
    )


class Expired(Unauthorized):
    """The time of a token, an approval, an invite or a frame is over: get a new one."""

    codes = ("expired", "token_expired")


class NotFound(_Coded):
    """No process offers the capability, or the named thing does not exist; `alt` names similar ones."""

    codes = ("not_found", "thread_missing")


class Unsupported(_Coded):
    """The provider offers it and cannot do it: try another provider or model."""

    codes = ("not_implemented",)


class InternalError(_Coded):
    """A defect of the provider; its log has more under `details["incident"]`."""

    codes = ("internal_error",)


class OutcomeUnknown(_Coded):
    """An effect may have happened: repeat with the same `client_id`, which returns its outcome."""

    codes = ("outcome_unknown",)


class Timeout(_Coded):
    """The deadline passed: repeat with more time, an effect under the same `client_id`."""

    codes = ("timeout",)


PLACES_TAKEN: Final = "places_taken"
"""The rule of `capacity_exceeded` from a provider at which a repetition may wait for a place."""


NOT_SHARED_WITH: Final = "not_shared_with"
NOT_SHARED_NOW: Final = "not_shared_now"
DAY_USED_UP: Final = "day_used_up"
SHARING_RULES: Final = frozenset({NOT_SHARED_WITH, NOT_SHARED_NOW, DAY_USED_UP})
"""The rules of refusals by a home's terms of sharing, after which another home may be called."""


class Overloaded(_Coded):
    """All places are taken, or the rate is exceeded: repeat after `retry_after_ms`."""

    codes = ("capacity_exceeded", "rate_limited")


class Unavailable(_Coded):
    """The other side cannot be reached now; `rule` says which side, and why.

    See: docs/protocol/errors.md#unavailable.
    """

    codes = ("partition",)


_CLASSES: Final[dict[str, type[_Coded]]] = {
    code: kind
    for kind in (
        InvalidRequest,
        Unauthorized,
        Expired,
        NotFound,
        Unsupported,
        InternalError,
        OutcomeUnknown,
        Timeout,
        Overloaded,
        Unavailable,
    )
    for code in kind.codes
}


def first_of(error: BaseException) -> BaseException:
    """Return the first single error in the error of a task group; any other error unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _one_line(message: str) -> str:
    """Escape the unprintable characters of `message` and cut its middle out if it is too long."""
    if len(message) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "backslashreplace").decode("ascii")
        for letter in message
    )
