"""URLs of models' servers as people write them: with extra paths or a login, near or far."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

_ENDS: Final = ("/chat/completions", "/completions", "/embeddings")
_NEAR: Final = (".local", ".lan", ".home.arpa", ".internal", ".localhost")


def base(url: str, below: str = "") -> str:
    """Return the URL to which the vendor's own path is appended.

    `below` is appended first if the URL does not end with it.
    """
    found = url.rstrip("/")
    for end in _ENDS:
        found = found.removesuffix(end)
    return found if found.endswith(below) else found + below


def without_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """Split a URL into the part without user and password, which may be logged, and these two."""
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    if not login:
        return url, None
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=place)), (unquote(user), unquote(password))


def is_near(url: str) -> bool:
    """Return whether the server is on this computer or in its own network."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith(_NEAR)
