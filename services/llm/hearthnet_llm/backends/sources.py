"""The rule about media that are not given as bytes: which servers get a URL, of whom.

    medium                                      the node itself   its gateway's clients   other nodes
    bytes; a blob that the caller may read      any server        any server              any server
    https:// of a public host                   vendors           vendors                 no
    at the vendor: file id, s3://, gs://,       vendors           no                      no
    https:// of the vendor's own API
    tools that the vendor runs                  vendors           vendors                 searches, and those
                                                                                          that the caller runs

A vendor is known by the host in its own address, met over https. Any other server, in particular one near the
node, would read URLs from where it stands: its disk, this computer, the local network. It gets bytes alone.
What lies at the vendor belongs to the account of this node's key. Nothing is fetched from the internet here.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from hearthnet.core import ModelConfig
from hearthnet.models import is_near, without_login
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.interface.caller import Caller, caller_of
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Part,
    ServerCallPart,
    ServerResultPart,
    VideoPart,
)
from hearthnet_llm.interface.request import ChatRequest, ServerTool
from hearthnet_llm.interface.validation import refusal
from hearthnet_llm.vendors.openai import dialect

Schemes = tuple[str, ...]
_FETCHED: Final[dict[str, Schemes]] = {
    "anthropic": ("https",),
    "bedrock-anthropic": (),
    "bedrock-converse": ("s3",),
    "gemini": ("https", "gs"),
    "ollama": (),
    "openai": ("https",),
}
"""Schemes that a vendor fetches, by the name of the protocol."""
_HOST: Final = re.compile(r"(?:[a-z0-9-]{1,63}\.)+(?:[a-z]{2,63}|xn--[a-z0-9-]{2,59})")
"""A public name: not an address in any notation, nor a name without a dot."""
_MOST_CHARACTERS: Final = 8192
_URL: Final = re.compile(rf"[!-\[\]-~]{{1,{_MOST_CHARACTERS}}}")
"""Printable ASCII without spaces and backslashes, which parsers read in different ways."""
_CLOSED: Final = frozenset(
    {
        *("web_search", "enterprise_web_search", "web_search_retrieval", "maps", "code_execution"),
        *("bash", "computer", "memory", "text_editor"),
    }
)
"""Tools of a vendor that open no address of the caller's choice, and no file of the node's account.

The latter ones are run by the caller itself.
"""
_FILE_FIELDS: Final = frozenset(
    {"file_id", "file_ids", "fileId", "file_uri", "fileUri", "fileData", "file_data"}
)
_BYTES: Final = ("base64", "content", "text")
"""Types of a source, of Anthropic's, that hold what they give."""
_PRIVATE: Final = "privatelink"
"""Part of the names of vendors' hosts (Azure, Snowflake) that lead into the network of their customer."""
_INSTEAD: Final = "send its bytes in data, or store an image here and give its image_cid"


def schemes_of(config: ModelConfig) -> Schemes | None:
    """Return the schemes of URLs that the model's server may get, None if it gets bytes alone."""
    url, _ = without_login(config.url)
    if urlsplit(url).scheme != "https" or not _is_vendor(url):
        return None
    return _FETCHED[backend_kinds.wire_of(config)]


def check_sources(request: ChatRequest, schemes: Schemes | None) -> None:
    """Check that the server may get what the messages and tools refer to; `schemes` as of `schemes_of`.

    Raises:
        HearthNetError: `bad_request`, with what to send instead, if it may not.
    """
    caller = caller_of(request)
    for place, tool in enumerate(request.tools or ()):
        if tool.server is not None:
            _check_tool(tool.server, f"/input/tools/{place}", caller, schemes)
    for place, message in enumerate(request.messages):
        for number, part in enumerate(message.content if isinstance(message.content, list) else []):
            check_source(part, f"/input/messages/{place}/content/{number}", caller, schemes)


def check_source(part: Part, path: str, caller: Caller, schemes: Schemes | None) -> None:
    """Check one part as `check_sources`."""
    if isinstance(part, ServerCallPart | ServerResultPart) and schemes is None:
        raise refusal(
            path, "this model's server runs no tools of a vendor; leave their calls and results out"
        )
    if isinstance(part, ServerResultPart) and not caller.is_node and _names_file(part.result):
        raise refusal(path, "this result names a file or URL, which is sent in this node's own calls alone")
    if isinstance(part, ImagePart | AudioPart | VideoPart | DocumentPart) and part.url is not None:
        _check_url(part.url, path, caller, schemes)
    elif getattr(part, "file_id", None) is not None:
        _check_file(path, caller, schemes)


def _check_tool(tool: ServerTool, path: str, caller: Caller, schemes: Schemes | None) -> None:
    if schemes is None:
        raise refusal(path, "this model's server runs no tools of a vendor; leave the tool out")
    if tool.sources and not caller.is_node:
        raise refusal(
            path, "what is kept at a vendor is searched in this node's own calls alone; leave sources out"
        )
    if not caller.is_here and tool.kind not in _CLOSED:
        raise refusal(path, f"the tool {tool.kind} is not run for other nodes; leave it out")


def _names_file(result: Any) -> bool:
    """Return whether a vendor that is given `result` could fetch something that it names."""
    left = [result]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            source = value.get("source")
            if value.keys() & _FILE_FIELDS or (isinstance(source, dict) and source.get("type") not in _BYTES):
                return True
            left += value.values()
        elif isinstance(value, list):
            left += value
    return False


def _check_url(url: str, path: str, caller: Caller, schemes: Schemes | None) -> None:
    if url[:5].lower() == "data:":
        raise refusal(path, "a data: URL is not passed on; give its bytes in data, with their media_type")
    if not caller.is_here:
        raise refusal(path, f"URLs of other nodes are not passed on; {_INSTEAD}")
    if not schemes:
        raise refusal(path, f"this model's server gets no URLs; {_INSTEAD}")
    if not _URL.fullmatch(url):
        raise refusal(path, f"this is no URL of at most {_MOST_CHARACTERS} characters; {_INSTEAD}")
    try:
        parts = urlsplit(url)
        is_bare = parts.username is None and parts.port is None
    except ValueError:
        raise refusal(path, f"this is no URL; {_INSTEAD}") from None
    if parts.scheme not in schemes:
        named = " or ".join(f"{scheme}://" for scheme in schemes)
        raise refusal(path, f"this model's server gets {named} alone; {_INSTEAD}")
    if parts.scheme != "https" or _is_vendor(url):
        _check_file(path, caller, schemes)
    elif not is_bare or not _HOST.fullmatch(parts.hostname or "") or is_near(url):
        raise refusal(path, f"a URL names a public host, without a login or port; {_INSTEAD}")


def _check_file(path: str, caller: Caller, schemes: Schemes | None) -> None:
    if not caller.is_node:
        raise refusal(path, f"what is kept at a vendor is used in this node's own calls alone; {_INSTEAD}")
    if schemes is None:
        raise refusal(path, f"this model's server gets no files by their id; {_INSTEAD}")


def _is_vendor(url: str) -> bool:
    """Return whether a URL leads to a vendor's API, which knows the node by its key."""
    if _PRIVATE in (urlsplit(url).hostname or "").lower().split("."):
        return False
    return backend_kinds.at(url) is not None or dialect.vendor_at(url) != ""
