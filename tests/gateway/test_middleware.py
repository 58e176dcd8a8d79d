"""What every request passes first: names, origins, cookies, sizes; and what an answer says to a browser."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest

from hearthnet.core.errors import CODES, HearthNetError
from hearthnet.gateway.http import errors
from tests.helpers.gateway import House, open_house

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("GATE-7")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8420",
        "127.0.0.1.evil.example",
        "[::1",
        "",
        "localhost@evil.example",
        "[::1].evil.example",
        "[::1]evil.example:1",
        "localhost/evil.example",
        "localhost:1:2",
        "localhost?",
    ],
)
async def test_a_page_whose_name_was_made_to_point_here_is_refused(shared: House, host: str) -> None:
    async with shared.http(shared.guest(), headers={"host": host}) as http:
        answer = await http.get("/v1/me")
    assert (answer.status_code, answer.json()) == (
        401,
        {
            "error": "unauthorized",
            "message": f"this is not {host!r}; open it by its address, or add the name to [gateway] names",
        },
    )


@pytest.mark.req("GATE-7")
async def test_names_of_this_computer_are_heard(shared: House) -> None:
    name = socket.gethostname()
    local = f"{name.partition('.')[0]}.local"
    for host in ("localhost", "LocalHost:1", "127.0.0.1:1", "[::1]:9", "192.0.2.7", name, f"{local}:1"):
        async with shared.http(headers={"host": host}) as http:
            assert (await http.get("/health")).status_code == 200, host


@pytest.mark.req("GATE-7")
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
async def test_a_stolen_cookie_is_worth_nothing_to_another_page(shared: House, origin: str) -> None:
    guest = shared.guest()
    async with shared.http(cookies=guest.cookies, headers={"origin": origin}) as http:
        for answer in (await http.get("/v1/me"), await http.delete("/v1/session")):
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    async with shared.http(cookies=guest.cookies) as http:
        assert (await http.delete("/v1/session")).status_code == 401
        # A header that names nobody is no other way than the cookie.
        for empty in ("", "Bearer"):
            refused = await http.delete("/v1/session", headers={"authorization": empty})
            assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        assert (await http.get("/v1/me")).status_code == 200


@pytest.mark.req("GATE-7", "GATE-8")
async def test_the_own_page_ends_its_session(shared: House) -> None:
    guest = shared.guest(key=True)
    async with shared.http(cookies=guest.cookies, headers={"origin": shared.url}) as http:
        ended = await http.delete("/v1/session")
        assert ended.status_code == 200
        assert f'{guest.cookie}=""' in ended.headers["set-cookie"]
    async with shared.http(cookies=guest.cookies) as http:
        assert (await http.get("/v1/me")).status_code == 401


@pytest.mark.req("GATE-17")
async def test_key_outlives_the_end_of_a_session(shared: House) -> None:
    guest = shared.guest()
    async with shared.http(guest) as http:
        refused = await http.delete("/v1/session")
        assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
        assert f"hearthnet clients remove {guest.entry.id}" in refused.json()["message"]
        assert (await http.get("/v1/me")).status_code == 200


@pytest.mark.req("GATE-9")
async def test_a_body_has_a_limit_whether_it_says_its_size_or_not(shared: House) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    async with shared.http(shared.guest(), headers={"content-type": "application/json"}) as http:
        said = await http.post("/v1/call", content=b" " * 1_048_577)
        unsaid = await http.post("/v1/call", content=endless())
        odd = await http.post("/v1/call", content=b" " * 1_048_575 + b"{")
    assert (said.status_code, said.json()["error"]) == (413, "payload_too_large")
    assert (unsaid.status_code, unsaid.json()["error"]) == (413, "payload_too_large")
    assert (odd.status_code, odd.json()["error"]) == (400, "bad_request")


@pytest.mark.req("GATE-10")
async def test_every_answer_tells_a_browser_to_be_careful(shared: House) -> None:
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    careful = {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "content-security-policy": policy,
        "cache-control": "no-store",
    }
    async with shared.http() as http:
        answers = [await http.get(path) for path in ("/health", "/nowhere", "/v1/me", "/v1/nowhere")]
        answers.append(await http.get("/health", headers={"host": "evil.example"}))
        answers.append(await http.put("/v1/session"))
    assert [answer.status_code for answer in answers] == [200, 404, 401, 404, 401, 405]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in careful} == careful
        assert "server" not in answer.headers


@pytest.mark.req("GATE-10")
async def test_what_there_is_not_is_said_in_the_same_words(shared: House) -> None:
    async with shared.http() as http:
        nowhere, wrong = await http.get("/v1/nowhere"), await http.put("/v1/session")
        of_openai = await http.get("/v1/chat/completions")
        own = await http.get("/nowhere")
        of_run = await http.get("/v1/runs/x/nothing")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    assert nowhere.json()["error"]["type"] == "not_found_error"
    assert (of_openai.status_code, of_openai.headers["allow"]) == (405, "POST")
    assert of_openai.json()["error"]["type"] == "invalid_request_error"
    for answer in (own, of_run):
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "bad_request")
    assert "POST" in wrong.headers["allow"]


@pytest.mark.req("GATE-7")
async def test_a_page_of_the_settings_may_ask_with_a_key(tmp_path: Any) -> None:
    async with open_house(tmp_path, '[gateway]\nport = 0\norigins = ["https://kitchen.example"]\n') as house:
        guest, origin = house.guest("rag.query"), {"origin": "https://kitchen.example"}
        async with house.http(headers=origin) as http:
            asked = {
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization",
            }
            before = await http.options("/v1/me", headers=asked)
            assert before.headers["access-control-allow-origin"] == origin["origin"]
            assert "access-control-allow-credentials" not in before.headers
            page = await http.get("/v1/me", headers=guest.bearer)
            assert page.headers["access-control-allow-origin"] == origin["origin"]
            assert page.json()["id"] == guest.entry.id
            stolen = {"cookie": f"{guest.cookie}={guest.cookies[guest.cookie]}"}
            for answer in (
                await http.get("/v1/me", headers=stolen),
                await http.delete("/v1/session", headers=stolen),
            ):
                assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
        async with house.http(cookies=guest.cookies) as http:
            assert (await http.get("/v1/me")).json()["id"] == guest.entry.id, "the cookie is a good one"


@pytest.mark.req("GATE-16")
async def test_origins_of_other_schemes_are_allowed_one_or_all(tmp_path: Any) -> None:
    origins = ["app://obsidian.md", "vscode-webview://*", "chrome-extension://*", "https://kitchen.example"]
    async with open_house(tmp_path, f"[gateway]\nport = 0\norigins = {json.dumps(origins)}\n") as house:
        guest = house.guest()
        host = house.url.removeprefix("http://")
        for origin, status in (
            ("app://obsidian.md", 200),
            ("vscode-webview://0a1b2c", 200),
            ("chrome-extension://abcdefghijklmnop", 200),
            ("app://other", 401),
            (f"app://{host}", 401),
            ("https://kitchen.example.evil.example", 401),
            ("https://kitchenXexample", 401),
            ("moz-extension://abc", 401),
            ("vscode-webview:", 401),
            ("http://[::1", 401),
            ("null", 401),
        ):
            async with house.http(guest, headers={"origin": origin}) as http:
                answer = await http.get("/v1/me")
            assert answer.status_code == status, origin
            assert answer.headers.get("access-control-allow-origin") == (origin if status == 200 else None)


@pytest.mark.req("GATE-10")
async def test_every_code_of_the_mesh_has_a_status() -> None:
    assert errors.STATUS.keys() == CODES
    assert [one for one in errors.STATUS.values() if not 400 <= HTTPStatus(one) <= 599] == []
    refused = errors.response(HearthNetError("rate_limited", "x", retry_after_ms=1500), "/v1/call")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")


@pytest.mark.req("GATE-10")
async def test_what_nobody_foresaw_is_logged_and_told_by_its_id(
    shared: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_text: str, **_options: object) -> None:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(shared.gateway.links, "use", broken)
    async with shared.http() as http:
        answer = await http.post("/v1/session", json={"code": "x"})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert "secret" not in answer.text
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert logged.getMessage() == f"error {answer.json()['message'].rpartition(' ')[2]}"
    assert "ZeroDivisionError: a secret of the inside" in caplog.text
