"""Streamed arguments assembled wrongly: what the loop is given by a bad stream never runs.

How recorded streams of vendors are put together is tested where that is done (tests/services/llm).

See: docs/protocol/failures.md#broken-arguments.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.bench import QUERY, Bench, dispatched, paired


@pytest.mark.req("TOOL-4")
@pytest.mark.parametrize("arguments", ['{"query": "rain', "", None, [QUERY], 7, {"query": "rain", "k": "3"}])
def test_what_is_no_complete_call_is_answered_and_never_runs(arguments: Any) -> None:
    bench = Bench()
    bench.delta("a", "search_corpus", '{"query": "rain')
    bench.call("search_corpus", arguments, "a")
    bench.model_done("tool_calls")
    assert dispatched(bench.actions) == []
    (result,) = bench.results()
    assert result["content"].startswith("invalid_arguments: ")


@pytest.mark.req("TOOL-4", "TOOL-12")
def test_pieces_without_their_end_never_run() -> None:
    bench = Bench()
    for piece in ('{"query"', ': "ra'):
        bench.delta("a", "search_corpus", piece)
        bench.delta("b", "market_post", piece)
    bench.model_done("tool_calls")
    assert bench.frames("done")
    assert dispatched(bench.actions) == []


@pytest.mark.req("TOOL-12")
def test_two_calls_under_one_id_stay_two() -> None:
    bench = Bench()
    bench.delta("0", "search_corpus", "{")
    bench.call("search_corpus", QUERY, "0")
    bench.call("list_corpora", {}, "0")
    first, second = dispatched(bench.actions)
    bench.returned(second, {"corpora": []})
    bench.returned(first, {"chunks": []})
    bench.model_done("tool_calls")
    paired(bench.asked_model().messages)
    assert [result["content"] for result in bench.results()] == ['{"chunks":[]}', '{"corpora":[]}']
