"""Signatures of Amazon (Signature Version 4), made by `botocore`, the extra `bedrock`.

The keys are read from AWS's own environment variables at each request and stored nowhere. An API key of
Bedrock needs no signature: it is named in the config and sent in a header, as keys of other vendors are.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.vendors.wire import HttpRequest

_ID: Final = "AWS_ACCESS_KEY_ID"
_SECRET: Final = "AWS_SECRET_ACCESS_KEY"
_SESSION: Final = "AWS_SESSION_TOKEN"
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOST: Final = re.compile(r"bedrock-runtime(?:-fips)?\.(?P<region>[a-z0-9-]+)\.")
_SERVICE: Final = "bedrock"
_MISSING: Final = "requests to Amazon Bedrock are signed with botocore; install hearthnet-llm[bedrock]"


def is_bedrock(host: str) -> bool:
    """Return whether a host is one of Amazon Bedrock."""
    return bool(_HOST.match(host)) and host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def region(name: str, url: str) -> str:
    """Return the region in a URL, or else that of the environment.

    Raises:
        HearthNetError: `bad_request` if neither names one.
    """
    named = _HOST.match(urlsplit(url).hostname or "")
    found = (
        named["region"] if named else next((os.environ[one] for one in _REGIONS if os.environ.get(one)), "")
    )
    if not found:
        raise HearthNetError(
            "bad_request",
            f"{name}: the url names no region; write https://bedrock-runtime.REGION.amazonaws.com, or set "
            f"{_REGIONS[0]}",
        )
    return found


class Signatures(msgspec.Struct, frozen=True):
    """Signatures of one backend, called `name` in messages."""

    name: str

    def headers(self, request: HttpRequest, body: bytes) -> dict[str, str]:
        """Return the headers that sign `request` with `body`; they are valid for minutes.

        Raises:
            HearthNetError: `unauthorized` if the keys are missing; `not_implemented` if `botocore` is.
        """
        key, secret = (os.environ.get(one, "").strip() for one in (_ID, _SECRET))
        if not key or not secret:
            raise HearthNetError(
                "unauthorized",
                f"{self.name}: set the environment variables {_ID} and {_SECRET}, or name the one that "
                "holds a key of Bedrock in api_key_env",
            )
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
            from botocore.credentials import Credentials
        except ImportError as error:
            raise HearthNetError("not_implemented", f"{self.name}: {_MISSING}") from error
        token = os.environ.get(_SESSION, "").strip() or None
        made = AWSRequest(request.method, request.url, dict(request.headers), body)
        signer = SigV4Auth(Credentials(key, secret, token), _SERVICE, region(self.name, request.url))
        signer.add_auth(made)
        return {header: value for header, value in made.headers.items() if header not in request.headers}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must not appear in an error or a log."""
        return tuple(os.environ[one].strip() for one in (_SECRET, _SESSION) if os.environ.get(one))
