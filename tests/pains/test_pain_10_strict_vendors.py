"""10. A call without a result breaks the conversation: what the next request looks like at each vendor.

Whatever became of the calls of a turn, the vendor's own types take the request and each call has its result.
That the validators would find one missing is tested as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.tools.types import Approve, Deny
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import wire
from tests.agent.bench import POST, QUERY, TOOLBOX, Bench, asked, dispatched
from tests.agent.test_resuming import Saved
from tests.pains.strict import CHECKS, TARGETS, strictly

pytestmark = [pytest.mark.req("PAIN-10", "LLM-25")]
NEXT = {"role": "user", "content": "Something else, then."}
TOOLS = [tool.definition for tool in TOOLBOX]
Messages = list[dict[str, Any]]


def _turn(bench: Bench) -> str:
    """The model talks, reads, and wants to post; what it is asked about."""
    bench.token("One moment. ")
    bench.call("search_corpus", QUERY, "r")
    question = asked(bench.call("market_post", POST, "p")).pending.confirmation_id
    bench.model_done("tool_calls")
    return question


def denied() -> Messages:
    bench = Bench()
    question = _turn(bench)
    bench.returned("r", {"chunks": []})
    bench.decided(question, Deny("not today"))
    return bench.asked_model().messages


def expired() -> Messages:
    bench = Bench(Limits(confirmation_ttl_ms=1_000))
    _turn(bench)
    bench.returned("r", {"chunks": []})
    bench.later(2_000)
    return bench.asked_model().messages


def cancelled() -> Messages:
    bench = Bench()
    _turn(bench)
    bench.cancel()
    return [*bench.loop.state.messages, NEXT]


def a_new_message_while_it_waits() -> Messages:
    """The message that was said on the way to the calls had no text at all."""
    bench = Bench()
    bench.call("market_post", POST, "p")
    bench.model_done("tool_calls")
    bench.cancel()
    return [*bench.loop.state.messages, NEXT]


def crashed() -> Messages:
    """Under way when its process died, and its outcome unknown."""
    bench = Saved()
    question = _turn(bench)
    bench.decided(question, Approve())
    bench.restart()
    bench.returned("r", {"chunks": []})
    bench.failed("p", "outcome_unknown")
    return bench.asked_model().messages


def all_that_a_model_gets_wrong() -> Messages:
    """No ids, equal ids, one of 94 characters, a tool there is not, broken arguments, nothing to say."""
    bench = Bench()
    for name, arguments, call_id in (
        ("search_corpus", QUERY, ""),
        ("search_corpus", '{"query": "ra', "x" * 94),
        ("rag.query", {}, "same"),
        ("list_corpora", {}, "same"),
        ("no such tool!", [1], "ö"),
        ("list_corpora", {}, "functions.list_corpora:0"),
        ("list_corpora", {}, "functions.list_corpora_0"),
        ("", None, ""),
    ):
        bench.call(name, arguments, call_id)
    bench.model_done("tool_calls")
    for call_id in dispatched(bench.actions):
        bench.returned(call_id, {"text": "x" * 50_000})
    return bench.asked_model().messages


def out_of_rounds() -> Messages:
    bench = Bench(Limits(max_iterations=1))
    bench.call("list_corpora", {}, "c")
    bench.model_done("tool_calls")
    bench.returned("c", None)
    return bench.asked_model().messages


CASES: list[Callable[[], Messages]] = [
    denied,
    expired,
    cancelled,
    a_new_message_while_it_waits,
    crashed,
    all_that_a_model_gets_wrong,
    out_of_rounds,
]


@pytest.mark.parametrize("case", CASES)
def test_every_vendor_takes_what_follows(case: Callable[[], Messages]) -> None:
    strictly(case(), TOOLS)


def _bent(body: dict[str, Any], vendor: str) -> list[dict[str, Any]]:
    """The request with a result lost, doubled, and moved behind what the user said next."""
    name = "contents" if vendor == "gemini" else "messages"
    place = next(number for number, turn in enumerate(body[name]) if _answers(turn))
    made = []
    for replaced in ([], [body[name][place]] * 2, None):
        bent = copy.deepcopy(body)
        if replaced is None:
            bent[name].append(bent[name].pop(place))
        else:
            bent[name][place : place + 1] = replaced
        made.append(bent)
    return made


def _answers(turn: dict[str, Any]) -> bool:
    return turn["role"] == "tool" or any(
        key in repr(turn) for key in ("'tool_result'", "'toolResult'", "functionResponse")
    )


@pytest.mark.parametrize("vendor", CHECKS)
def test_a_validator_finds_what_is_missing(vendor: str) -> None:
    messages = [*denied(), {"role": "assistant", "content": "Well."}, NEXT]
    tools = [{"name": tool.name, "parameters_schema": tool.parameters_schema} for tool in TOOLS]
    request = msgspec.convert({"messages": messages, "tools": tools, "stream": True}, ChatRequest)
    body = msgspec.json.decode(msgspec.json.encode(wire(vendor).encode(request, TARGETS[vendor]).body))
    CHECKS[vendor](body)
    for bent in _bent(body, vendor):
        with pytest.raises(AssertionError):
            CHECKS[vendor](bent)
