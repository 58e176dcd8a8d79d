"""Links for phones: they open once, on another computer, over the gateway's own TLS."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from hearthnet.trust.keys import Identity
from tests.gateway.http.test_connection_limits import opened
from tests.helpers.certificates import certificate
from tests.helpers.envelopes import opening
from tests.helpers.gateway import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAME = "kitchen.example"


@contextlib.asynccontextmanager
async def phone(house: House, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a gateway that serves TLS to others."""
    pem = certificate(folder)
    async with opened(house, host="0.0.0.0", certificate=pem, names=(NAME,)) as gateway:
        port = gateway.url.rpartition(":")[2]
        context = ssl.create_default_context(cafile=pem)
        async with httpx2.AsyncClient(
            base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False, timeout=30
        ) as http:
            yield http


async def post(house: House, http: httpx2.AsyncClient, code: str, **headers: str) -> httpx2.Response:
    """Opens the link with `code`."""
    body = opening(Identity.generate(), code, house.bus.peer.node_id, "Phone")
    return await http.post(
        "/v1/session", json=body, headers={"Host": NAME, **headers}, extensions={"sni_hostname": NAME}
    )


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks has the address of another computer."""
    monkeypatch.setattr("hearthnet.gateway.auth.session_routes.address_of", lambda _request: "192.0.2.9")


@pytest.mark.req("PERSON-76", "ATTACK-72")
async def test_a_link_for_a_phone_opens_once_from_elsewhere(
    shared: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch)
    links = shared.gateway.links
    code, local, late = (
        links.make(is_for_elsewhere=True),
        links.make(),
        links.make("owner", 0, is_for_elsewhere=True),
    )
    async with phone(shared, tmp_path) as http:
        for refused in (
            await post(shared, http, local),
            await post(shared, http, late),
            await post(shared, http, code, **{"x-forwarded-for": "192.0.2.1"}),
        ):
            assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        first = await post(shared, http, code)
        assert first.status_code == 201, first.text
        assert "Secure" in first.headers["set-cookie"]
        again = await post(shared, http, code)
        assert (again.status_code, again.json()["error"]) == (401, "unauthorized")
    assert links.use(local).principal == "owner", "an attempt from elsewhere has not used it"


@pytest.mark.req("PERSON-76", "ATTACK-72")
async def test_a_link_for_a_phone_takes_tls(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(monkeypatch)
    code = shared.gateway.links.make(is_for_elsewhere=True)
    async with shared.http() as http:
        answer = await http.post("/v1/session", json={"code": code})
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    assert shared.gateway.links.use(code, is_here=False).is_for_elsewhere
