"""The one family of errors that may cross a module or process boundary.

    HearthNetError
      code      one of CODES, the closed set of wire codes (docs/protocol/errors.md#codes)
      message   one line for a person: what is wrong and what to do
      details   where it is wrong: path, rule, limit, nearest names ...

Whose fault it is follows from the code: `MINE` the caller can mend, `PEER` the other side or the mesh, the
rest is the world's (time, load, distance). An exception that is not of this family and reaches a border is
logged in full under an id and crosses as `internal_error` with that id only.
"""

from __future__ import annotations

from typing import Any, Final

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
        "federation_forbidden",
        "not_federated",
    }
)
PEER: Final = frozenset(
    {"not_found", "not_implemented", "internal_error", "thread_missing", "outcome_unknown"}
)
WORLD: Final = frozenset(
    {
        "timeout",
        "partition",
        "capacity_exceeded",
        "rate_limited",
        "relay_unreachable",
        "e2e_session_missing",
        "e2e_decrypt_failed",
        "ratchet_out_of_order",
        "dht_lookup_failed",
    }
)
CODES: Final = MINE | PEER | WORLD

CONTEXT_LENGTH: Final = "context_length"
"""`details.rule` of a `bad_request` whose conversation is longer than the model's context."""

LONGEST_MESSAGE: Final = 2_000
"""Characters of a message on the wire."""

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
    "relay_unreachable": TIMED_OUT,
    "capacity_exceeded": FULL,
    "rate_limited": FULL,
}


def exit_code(code: str) -> int:
    """The exit code of a command that ended with wire code `code`.

    See: docs/protocol/errors.md#mapping-to-exit-codes.
    """
    return _EXIT_CODES.get(code, OTHER)


class HearthNetError(Exception):
    """An error with a wire code.

    `retry_after_ms` is set where waiting helps; `alt` names what the caller may have meant (capabilities,
    corpora, tools); `exit_status` overrides the exit code that follows from `code`, for conditions only a
    shell knows.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
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
        self.details = details or {}
        self.retry_after_ms = retry_after_ms
        self.alt = alt or []
        self.exit_status = exit_code(code) if exit_status is None else exit_status

    def to_body(self) -> dict[str, Any]:
        """The error object of the wire (docs/protocol/errors.md#error-object).

        The message is one line there, of bounded length and without hidden characters: it may quote what
        somebody sent.
        """
        body: dict[str, Any] = {"error": self.code, "message": _one_line(self.message)}
        if self.details:
            body["details"] = self.details
        if self.retry_after_ms is not None:
            body["retry_after_ms"] = self.retry_after_ms
        if self.alt:
            body["alt_capabilities"] = self.alt
        return body

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> HearthNetError:
        """The error that `body` describes; an unknown code becomes `internal_error`, named in the message."""
        code, message = str(body.get("error", "")), str(body.get("message", "no message"))
        if code not in CODES:
            code, message = "internal_error", f"{message} (unknown code {code!r})"
        details, alt, retry = body.get("details"), body.get("alt_capabilities"), body.get("retry_after_ms")
        return cls(
            code,
            message,
            details=details if isinstance(details, dict) else None,
            alt=[str(name) for name in alt] if isinstance(alt, list) else None,
            retry_after_ms=retry if type(retry) is int and retry >= 0 else None,
        )


def first_of(error: BaseException) -> BaseException:
    """The first single error in what a task group raises; any other error as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _one_line(message: str) -> str:
    """`message` with what cannot be seen as its code, and with its middle cut out where it is too long."""
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
