"""The page's files as they are served, and what no file of it may contain."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import httpx2
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from hearthnet.agent.tools.builtin import builtin_names
from hearthnet.gateway import page
from tests.gateway.page.library import ask

CAREFUL: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
STATIC: Final = Path(page.__file__).parent / "static"
SOURCES: Final = sorted(STATIC.rglob("*.js"))


@pytest_asyncio.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    app = Starlette(routes=page.routes(cast("Any", None)))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://page") as client:
        yield client


def addresses(index: str) -> list[str]:
    return sorted(set(re.findall(r'(?:href|src|data-tools)="(/page/[^"]+)"', index)))


@pytest.mark.req("PAGE-8")
@pytest.mark.asyncio
async def test_all_that_the_page_names_is_there_and_is_kept(http: httpx2.AsyncClient) -> None:
    index = await http.get("/")
    assert index.headers["content-type"].startswith("text/html")
    assert index.headers["cache-control"] == "no-cache"
    named = addresses(index.text)
    assert {one.rpartition("/")[2] for one in named} >= {path.name for path in SOURCES}
    for address in named:
        answer = await http.get(address)
        assert answer.status_code == 200, address
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.req("PAGE-8")
@pytest.mark.asyncio
async def test_a_browser_that_has_the_page_is_told_so(http: httpx2.AsyncClient) -> None:
    tag = (await http.get("/")).headers["etag"]
    again = await http.get("/", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert (await http.get("/", headers={"If-None-Match": '"other"'})).status_code == 200


@pytest.mark.req("PAGE-8")
@pytest.mark.asyncio
async def test_nothing_but_its_files_is_served(http: httpx2.AsyncClient) -> None:
    version = addresses((await http.get("/")).text)[0].split("/")[2]
    names = (
        *("../__init__.py", "..%2f__init__.py", "%2e%2e/__init__.py", "js/../../__init__.py", "/etc/passwd"),
        *("//etc/passwd", "js/..%5c..%5c__init__.py", "js", "js/", "", "index.html", "js/main.js%00"),
        *("package.json", "JS/main.js"),
    )
    for name in names:
        answer = await http.get(f"/page/{version}/{name}")
        assert (answer.status_code, answer.content) == (404, b""), name
    assert (await http.get(f"/page/{version}/js/main.js")).status_code == 200
    assert (await http.get("/page/0000000000000000/js/main.js")).status_code == 404


@pytest.mark.req("PAGE-9")
@pytest.mark.asyncio
async def test_the_browser_is_told_to_run_and_load_nothing_else(http: httpx2.AsyncClient) -> None:
    index = await http.get("/")
    for answer in (index, await http.get(addresses(index.text)[0]), await http.get("/page/x/y")):
        assert {name: answer.headers.get(name) for name in CAREFUL} == CAREFUL


@pytest.mark.req("PAGE-9")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_source_makes_markup_or_code_from_text(source: Path) -> None:
    text = source.read_text()
    forbidden = (
        r"(inner|outer|insertAdjacent)HTML|document\.write|\beval\b|new Function|DOMParser|srcdoc|\.style\b"
    )
    assert not re.search(forbidden, text)
    assert not re.search(r"\bimport\s*\(", text)
    urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not urls
    assert max(map(len, text.splitlines())) <= 140 or "texts" in source.name


@pytest.mark.req("PAGE-4")
def test_every_text_that_is_used_is_there_and_the_others_are_not() -> None:
    keys = set(ask("texts"))
    sources = "\n".join(path.read_text() for path in SOURCES if path.name != "texts.js")
    named = {one for one in re.findall(r"\"([a-z_]+(?:\.[a-z_]+)+)\"", sources) if not one.endswith(".js")}
    names_of_capabilities = {
        one for one in named if one.split(".")[0] in ("llm", "rag", "mesh", "market")
    } - keys
    assert names_of_capabilities == {"llm.chat", "rag.query", "mesh.neighbours", "market.post"} - keys
    assert named - keys == names_of_capabilities
    made = tuple(re.findall(r"`([a-z_]+\.)\$\{", sources.replace("`hearthnet.${", "")))
    families = {
        "device_kind",
        "error",
        "field",
        "happened",
        "health",
        "loan",
        "market",
        "nav",
        "settings",
        "state",
        "status",
        "stop",
        "theme",
    }
    assert {one.rstrip(".") for one in made} == families
    assert {one for one in keys - named if not one.startswith(made)} == set()


@pytest.mark.req("PAGE-5")
@pytest.mark.asyncio
async def test_the_page_knows_the_built_in_tools_and_their_schemas(http: httpx2.AsyncClient) -> None:
    found = re.search(r'data-tools="([^"]+)"', (await http.get("/")).text)
    assert found is not None
    tools = (await http.get(found[1])).json()["tools"]
    assert [one["name"] for one in tools] == builtin_names()
    post = next(one for one in tools if one["name"] == "market_post")
    assert post["side_effects"]
    assert post["capability"] == "market.post@1.0"
    assert post["parameters_schema"]["required"] == ["category", "title", "body"]
