"""The errors for answers of models' servers that are not what the vendor promises."""

from __future__ import annotations

from hearthnet import InternalError


def no_answer(model: str, text: str) -> InternalError:
    """Return the error for a successful answer whose body is not in the vendor's form."""
    what = "an HTML page" if text.lstrip()[:1] == "<" else "no JSON object"
    return InternalError(f"{model}: the server answered {what}; check its url in hearthnet.toml")


def broken(model: str) -> InternalError:
    """Return the error for an answer without an end."""
    return InternalError(f"{model}: the server stopped in mid-answer; ask again")
