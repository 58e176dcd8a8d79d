"""Whatever JSON is sent: it is read as a valid request, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.errors import error_body
from hearthnet.gateway.openai.request import read_request
from hearthnet.gateway.openai.source import continued

CHAT = contracts().get("llm.chat@2.0")
_KNOWN = (
    "role content type text image_url url detail input_audio data format file file_data tool_calls id",
    "function name arguments custom input tool_call_id refusal tools run events mode allowed_tools",
    "json_schema schema",
)
_NAMES = st.sampled_from([name for line in _KNOWN for name in line.split()])
_WORDS = st.sampled_from(
    ["user", "assistant", "tool", "system", "text", "image_url", "function", "{}", "auto"]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**60)
    | st.floats(allow_nan=False)
    | _WORDS
    | st.text(max_size=5)
)
_ANY = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
_MESSAGE = st.fixed_dictionaries(
    {"role": _WORDS}, optional=dict.fromkeys(("content", "tool_calls", "tool_call_id", "name"), _ANY)
)
_REQUEST = st.fixed_dictionaries(
    {"model": _WORDS | st.just("mesh+tools"), "messages": st.lists(_MESSAGE, max_size=3) | _ANY},
    optional=dict.fromkeys(
        ("tools", "tool_choice", "response_format", "stop", "stream_options", "hearthnet", "max_tokens"), _ANY
    ),
)


@pytest.mark.req("HTTP-10", "HTTP-11")
@given(_REQUEST | _ANY)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        asked = read_request(value)
        CHAT.check_request(asked.body)
    except HearthNetError as refused:
        told = error_body(refused)["error"]
        assert told["code"] == "bad_request"
        assert told["message"]
    else:
        assert continued(asked) is None or asked.body["input"]["messages"]
