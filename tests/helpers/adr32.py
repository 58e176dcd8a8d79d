"""What ADR-32 demands of a service's answers, written down for tests."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from nats.micro.service import SEMVER_REGEX, ServiceInfo, ServicePing, ServiceStats

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_IDENTITY: Final[dict[str, type]] = {"type": str, "name": str, "id": str, "version": str, "metadata": dict}
_ENDPOINT: Final[dict[str, type]] = {"name": str, "subject": str, "queue_group": str}
_INFO: Final[dict[str, type]] = {**_ENDPOINT, "metadata": dict}
_STATS: Final[dict[str, type]] = {
    **_ENDPOINT,
    "num_requests": int,
    "num_errors": int,
    "last_error": str,
    "processing_time": int,
    "average_processing_time": int,
    "data": dict,
}


def check(verb: str, document: dict[str, Any]) -> None:
    """Fails where `document` is no answer to `verb`; reads it with nats-py's own types as well."""
    _has(document, {**_IDENTITY, **_MORE[verb]})
    assert document["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
    assert _NAME.fullmatch(document["name"])
    assert _NAME.fullmatch(document["id"])
    assert SEMVER_REGEX.fullmatch(document["version"])
    assert all(isinstance(value, str) for value in document["metadata"].values())
    for endpoint in document.get("endpoints", ()):
        _has(endpoint, _INFO if verb == "INFO" else _STATS)
        assert _NAME.fullmatch(endpoint["name"])
        assert " " not in endpoint["subject"]
    _READERS[verb].from_dict(document)
    if verb == "STATS":
        assert datetime.fromisoformat(document["started"]).utcoffset() is not None


def _has(document: dict[str, Any], fields: dict[str, type]) -> None:
    assert set(document) == set(fields)
    for name, kind in fields.items():
        assert type(document[name]) is kind, (name, document[name])


_MORE: Final[dict[str, dict[str, type]]] = {
    "PING": {},
    "INFO": {"description": str, "endpoints": list},
    "STATS": {"started": str, "endpoints": list},
}
_READERS: Final[dict[str, Any]] = {"PING": ServicePing, "INFO": ServiceInfo, "STATS": ServiceStats}
