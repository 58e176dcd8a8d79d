"""URLs of models' servers as people write them: with a path too many, with a login, near or far."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

_ENDS: Final = ("/chat/completions", "/completions", "/embeddings")
_NEAR: Final = (".local", ".lan", ".home.arpa", ".internal")


def base(url: str, below: str = "") -> str:
    """What the wire's own path is appended to; `below` is put in where the URL does not end with it."""
    found = url.rstrip("/")
    for end in _ENDS:
        found = found.removesuffix(end)
    return found if found.endswith(below) else found + below


def without_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without user and password, which must not reach a log, and those two."""
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    if not login:
        return url, None
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=place)), (unquote(user), unquote(password))


def is_near(url: str) -> bool:
    """Whether the server is on this computer or in its own network."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith(_NEAR)
