"""Which server gets a URL, or a file at a vendor, of whom."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from hearthnet.core import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.sources import _FETCHED, check_source, check_sources, schemes_of
from hearthnet_llm.interface.caller import NOBODY, Caller, CallerRequest, caller_of, with_caller
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Part,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    UploadPart,
    VideoPart,
)
from hearthnet_llm.interface.request import ChatRequest, Message, ServerTool, Tool
from hearthnet_llm.media import LIMITS

pytestmark = pytest.mark.req("ATTACK-38")
NODE, CLIENT, OTHER = Caller(is_here=True, is_node=True), Caller(is_here=True), NOBODY
PLACE = "/input/messages/0/content/1"


def refused(part: Part, caller: Caller, schemes: tuple[str, ...] | None) -> str:
    """The reason, or nothing."""
    found: HearthNetError | None = None
    try:
        check_source(part, PLACE, caller, schemes)
    except HearthNetError as error:
        found = error
    if found is None:
        return ""
    assert (found.code, found.details["path"]) == ("bad_request", PLACE)
    return found.message


@pytest.mark.parametrize(
    ("kind", "url", "schemes"),
    [
        ("openai", "https://api.openai.com/v1", ("https",)),
        ("openai", "https://user:word@openrouter.ai/api/v1", ("https",)),
        ("openai", "http://api.openai.com/v1", None),
        ("openai", "http://127.0.0.1:8000/v1", None),
        ("openai", "https://models.example.org/v1", None),
        ("openai", "https://api.openai.com.example.org/v1", None),
        ("openai", "https://api.openai.com@127.0.0.1/v1", None),
        ("azure", "https://mine.openai.azure.com/openai/v1", ("https",)),
        ("openai", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", ("https",)),
        ("openai", "https://mine.pai-eas.aliyuncs.com/v1", None),
        ("openai", "https://mine.snowflakecomputing.com/api/v2/cortex/v1", ("https",)),
        ("openai", "https://mine.privatelink.snowflakecomputing.com/api/v2/cortex/v1", None),
        ("anthropic", "https://api.anthropic.com/v1", ("https",)),
        ("anthropic", "http://192.168.1.7:4000", None),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", ("https", "gs")),
        ("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com", ("s3",)),
        ("ollama", "http://127.0.0.1:11434", None),
        ("ollama", "https://ollama.example.org", None),
    ],
)
def test_urls_go_to_vendors_alone(kind: str, url: str, schemes: tuple[str, ...] | None) -> None:
    assert schemes_of(ModelConfig(kind=kind, name="m", url=url, model="m")) == schemes  # type: ignore[arg-type]


def test_each_protocol_has_its_schemes() -> None:
    assert _FETCHED.keys() == LIMITS.keys()


@pytest.mark.parametrize("kind", [ImagePart, AudioPart, VideoPart, DocumentPart])
def test_a_url_is_passed_on_for_this_node_and_its_clients(kind: type[ImagePart]) -> None:
    part = kind(url="https://upload.example.org/a.png?size=2")
    assert not refused(part, NODE, ("https",))
    assert not refused(part, CLIENT, ("https",))
    assert "URLs of other nodes are not passed on; send its bytes" in refused(part, OTHER, ("https",))
    assert "gets no URLs; send its bytes" in refused(part, NODE, None)
    assert "gets no URLs" in refused(part, NODE, ())
    assert "gets s3:// alone" in refused(part, NODE, ("s3",))


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/",
        "https://[fe80::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::1",
        "https://8.8.8.8/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://localhost/",
        "https://a.localhost/",
        "https://printer.local/",
        "https://nas.lan/",
        "https://intranet/",
        "https://upload.example.org:8443/",
        "https://upload.example.org@127.0.0.1/",
        "https://upload.example.org\\@127.0.0.1/",
        "https://upload.example.org\t/",
        "https://upload.example.org./",
        "https://upload.ex\u00e4mple.org/",
        "https://upload.example.org/" + "a" * 8192,
        "https:///etc/passwd",
        "https:",
        "http://upload.example.org/",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "/etc/passwd",
        "data:image/png;base64,AA==",
        "DATA:,x",
        "",
    ],
)
def test_a_url_names_a_public_host_over_https(url: str) -> None:
    assert refused(ImagePart(url=url), NODE, ("https", "gs"))


@pytest.mark.parametrize(
    "part",
    [
        ImagePart(file_id="file-1"),
        AudioPart(file_id="audio-1"),
        UploadPart("file-1"),
        DocumentPart(url="gs://bucket/a.pdf"),
        VideoPart(url="https://generativelanguage.googleapis.com/v1beta/files/a"),
    ],
)
def test_what_is_kept_at_a_vendor_is_for_this_nodes_own_calls(part: Part) -> None:
    schemes = ("https", "gs")
    assert not refused(part, NODE, schemes)
    assert refused(part, NODE, None)
    assert refused(part, CLIENT, schemes)
    assert refused(part, OTHER, schemes)


@pytest.mark.parametrize(
    "part", [ServerCallPart("web_fetch"), ServerResultPart("web_fetch", result={"url": "file:///"})]
)
def test_results_of_a_vendors_tools_go_to_vendors_alone(part: Part) -> None:
    assert refused(part, NODE, None)
    assert not refused(part, OTHER, ())


@pytest.mark.parametrize(
    "result",
    [
        [{"type": "code_execution_output", "file_id": "file_1"}],
        {"content": {"type": "document", "source": {"type": "url", "url": "https://example.org"}}},
        {"content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]},
        {"content": {"type": "image", "source": {"type": "another"}}},
        {"parts": [{"fileData": {"fileUri": "gs://bucket/a.pdf"}}]},
    ],
)
def test_a_result_that_names_a_file_is_for_this_nodes_own_calls(result: Any) -> None:
    part = ServerResultPart("web_fetch", result=result)
    assert not refused(part, NODE, ())
    assert "names a file or URL" in refused(part, CLIENT, ())
    assert "names a file or URL" in refused(part, OTHER, ())


def test_a_result_that_holds_its_bytes_is_for_everybody() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
    result = {
        "type": "web_fetch_result",
        "url": "https://x.org",
        "content": {"type": "document", "source": source},
    }
    assert not refused(ServerResultPart("web_fetch", result=result), OTHER, ())


@pytest.mark.parametrize(
    ("server", "who"),
    [
        (ServerTool("web_search"), "node client other"),
        (ServerTool("code_execution"), "node client other"),
        (ServerTool("web_fetch"), "node client"),
        (ServerTool("mcp_toolset"), "node client"),
        (ServerTool("file_search"), "node client"),
        (ServerTool("one_to_come"), "node client"),
        (ServerTool("file_search", sources=["fileSearchStores/private"]), "node"),
        (ServerTool("web_search", sources=["fileSearchStores/private"]), "node"),
    ],
)
def test_a_vendors_tools_have_the_rights_of_the_caller(server: ServerTool, who: str) -> None:
    served = []
    for name, caller in (("node", NODE), ("client", CLIENT), ("other", OTHER)):
        request = CallerRequest(messages=[], tools=[Tool("t", server=server)], caller=caller)
        with pytest.raises(HearthNetError, match="/input/tools/0: this model's server runs no tools"):
            check_sources(request, None)
        with contextlib.suppress(HearthNetError):
            check_sources(request, ())
            served.append(name)
    assert " ".join(served) == who


def test_every_part_of_every_message_is_checked() -> None:
    link = ImagePart(url="https://upload.example.org/a.png")
    messages = [Message("user", "https://x.org"), Message("user", [TextPart("?"), link])]
    check_sources(CallerRequest(messages=messages, caller=CLIENT), ("https",))
    with pytest.raises(HearthNetError, match="URLs of other nodes are not passed on") as caught:
        check_sources(CallerRequest(messages=messages, caller=OTHER), ("https",))
    assert caught.value.details["path"] == "/input/messages/1/content/1"


def test_what_refers_to_nothing_is_for_everybody() -> None:
    for part in (TextPart("https://127.0.0.1/"), ImagePart("AA=="), DocumentPart(text="x")):
        assert not refused(part, OTHER, None)


class Owner:
    """The node `own`, as far as its calls are judged here."""

    identity = SimpleNamespace(node_id="own")

    def is_self(self, call: Any) -> bool:
        """As `NodeContext.is_self`."""
        return bool(call.caller == call.principal == "own")

    async def open_blob(self, cid: str, call: Any) -> Any:
        """Tells with whose rights a blob is opened."""
        return cid, call.principal


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("caller", "principal", "is_here", "is_node"),
    [
        ("own", "own", True, True),
        ("own", "own/client-1", True, False),
        ("own", "other", False, False),
        ("own", "other/guest", False, False),
        ("own", "owner", False, False),
        ("other", "other", False, False),
        ("other", "own", False, False),
        ("other", "own/client-1", False, False),
    ],
)
async def test_a_request_has_the_rights_of_its_principal(
    caller: str, principal: str, is_here: bool, is_node: bool
) -> None:
    call: Any = SimpleNamespace(caller=caller, principal=principal)
    owner: Any = Owner()
    request = with_caller(ChatRequest(messages=[], seed=4), call, owner)
    rights = caller_of(request)
    assert (rights.is_here, rights.is_node, request.seed) == (is_here, is_node, 4)
    found: Any = await rights.open_blob("c")
    assert found == ("c", principal)


@pytest.mark.asyncio
async def test_a_request_without_a_caller_reads_no_blob() -> None:
    rights = caller_of(ChatRequest(messages=[]))
    assert rights == NOBODY
    with pytest.raises(HearthNetError) as caught:
        await rights.open_blob("blake3:" + "0" * 64)
    assert caught.value.code == "not_found"
