"""Signatures of Amazon: one that is verified by its rules, and keys that are missing or told to nobody."""

from __future__ import annotations

import hashlib
import hmac
import sys
from urllib.parse import quote

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends import aws
from hearthnet_llm.vendors import bedrock_converse
from hearthnet_llm.vendors.json_access import as_text
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import ASKED

pytestmark = pytest.mark.req("LLM-36")
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
HOST = "bedrock-runtime.eu-central-1.amazonaws.com"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in AWS's own variables."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")


def made() -> tuple[HttpRequest, bytes]:
    """A request whose path has something to escape, and its body."""
    request = bedrock_converse.encode(ASKED, Target("eu.anthropic.claude-x:0", f"https://{HOST}"))
    return request, as_text(request.body).encode()


def hashed(key: bytes, text: str) -> bytes:
    """One step of the derivation of a key."""
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def verified(request: HttpRequest, body: bytes, headers: dict[str, str]) -> bool:
    """Whether a signature is the one that AWS would compute ("Signature Version 4 signing process")."""
    scheme, _, rest = headers["Authorization"].partition(" ")
    fields = dict(one.strip().split("=", 1) for one in rest.split(","))
    lower = {"host": HOST, **{name.lower(): value for name, value in headers.items()}}
    names = fields["SignedHeaders"]
    canonical = "\n".join(
        (
            request.method,
            quote(request.url.partition(HOST)[2], safe="/-_.~"),
            "",
            *(f"{name}:{lower[name]}" for name in names.split(";")),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = fields["Credential"].partition("/")[2]
    signed = "\n".join((scheme, headers["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{SECRET}".encode()
    for step in scope.split("/"):
        key = hashed(key, step)
    return fields["Signature"] == hashed(key, signed).hex()


@pytest.mark.usefixtures("keys")
def test_a_request_is_signed_as_the_vendor_verifies_it() -> None:
    request, body = made()
    headers = aws.Signatures("mine").headers(request, body)
    assert verified(request, body, headers)
    assert not verified(request, body + b" ", headers)
    assert headers["X-Amz-Security-Token"] == "session"
    assert "/eu-central-1/bedrock/aws4_request" in headers["Authorization"]
    assert SECRET not in str(headers)
    assert aws.Signatures("mine").secrets == (SECRET, "session")


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
@pytest.mark.usefixtures("keys")
def test_missing_keys_are_said_by_their_variables(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(HearthNetError, match=missing) as caught:
        aws.Signatures("mine").headers(*made())
    assert caught.value.code == "unauthorized"
    assert "AKIDEXAMPLE" not in caught.value.message


@pytest.mark.usefixtures("keys")
def test_without_botocore_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(HearthNetError, match=r"hearthnet-llm\[bedrock\]") as caught:
        aws.Signatures("mine").headers(*made())
    assert caught.value.code == "not_implemented"


def test_the_region_is_that_of_the_url_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert aws.region("m", f"https://{HOST}/x") == "eu-central-1"
    assert aws.region("m", "https://bedrock-runtime-fips.us-east-1.amazonaws.com") == "us-east-1"
    with pytest.raises(HearthNetError, match="names no region"):
        aws.region("m", "http://127.0.0.1:8000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert aws.region("m", "http://127.0.0.1:8000") == "eu-west-1"
