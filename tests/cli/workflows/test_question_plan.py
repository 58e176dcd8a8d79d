"""Which model and which tools a question gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hearthnet.agent.runtime.settings import ToolSettings
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.cli.workflows.question_plan import ModelOffer, Offered
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import OfferRecord

OWN = "ed25519:" + "A" * 43
OneOffer = tuple[str, dict[str, Any]]
BUILTIN = {"model": "small", "tools_supported": True, "tools_by_name_only": True, "advice": "only for trying"}
GOOD = {"model": "good", "models": ["best"], "tools_supported": True, "ctx": 8192, "languages": ["en", "de"]}
MUTE = {"model": "mute", "tools_supported": False}
SYSTEM: OneOffer = ("rag.query@1.0", {"corpus": "system"})
BEES = ("rag.query@1.0", {"corpus": "bees"})
POST: OneOffer = ("market.post@1.0", {})


def chat(params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The offer of a model."""
    return "llm.chat@2.0", params


def offered(*offers: tuple[str, dict[str, Any]], node: str = OWN) -> Offered:
    """A mesh with these offers."""
    views = [
        OfferView(
            node,
            parse_capability(capability),
            OfferRecord(
                capability=capability,
                instance="abcdefgh",
                schema_hash="",
                params=params,
                max_concurrent=1,
                in_flight=0,
                issued_at=0,
                expires_at=1,
            ),
        )
        for capability, params in offers
    ]
    return Offered(views, OWN, Path("/home/hearthnet.toml"))


def refused(mesh: Offered, *arguments: Any) -> HearthNetError:
    """The error of a plan that cannot be."""
    with pytest.raises(HearthNetError) as caught:
        mesh.plan(*arguments)
    return caught.value


@pytest.mark.req("MIRROR-12")
def test_a_corpus_of_a_home_that_is_away_is_asked_for() -> None:
    """Another home may have a copy, and offer it in a moment."""
    away, nodes = "ed25519:" + "B" * 43, {"Kitchen": OWN}
    roster: Any = SimpleNamespace(nodes_called=lambda name: [nodes[name]] if name in nodes else [])
    mesh = replace(offered(chat(BUILTIN), SYSTEM), roster=roster)
    for corpus in ("manuals", "manuals@Kitchen", "manuals@Attic"):
        assert refused(mesh, corpus, (), None).code == "not_found"
    nodes["Attic"] = away
    (tool,) = mesh.plan("manuals@Attic", (), None).tools
    assert tool.bound_params == {"corpus": "manuals@Attic"}


@pytest.mark.req("ASK-1")
def test_a_corpus_demands_its_search_by_name_and_fixes_the_corpus() -> None:
    plan = offered(chat(BUILTIN), SYSTEM, BEES).plan("bees", (), None)
    assert plan.choice == {"name": "search_corpus"}
    (tool,) = plan.tools
    assert tool.bound_params == {"corpus": "bees"}
    assert "corpus" not in tool.parameters_schema["properties"]
    body = plan.request("How?")
    assert body["params"] == {"model": "small"}
    assert body["input"]["tool_choice"] == {"name": "search_corpus"}
    assert body["input"]["max_tokens"] == 320


@pytest.mark.req("ASK-2")
def test_a_named_tool_is_demanded_by_name() -> None:
    plan = offered(chat(BUILTIN), POST).plan(None, ("market_post", "market_post"), None)
    assert [tool.name for tool in plan.tools] == ["market_post"]
    assert plan.choice == {"name": "market_post"}


def test_with_a_corpus_and_a_tool_the_search_comes_first() -> None:
    plan = offered(chat(BUILTIN), POST, SYSTEM).plan("system", ("market_post",), None)
    assert [tool.name for tool in plan.tools] == ["search_corpus", "market_post"]
    assert plan.choice == {"name": "search_corpus"}


@pytest.mark.req("ASK-3")
def test_with_nothing_named_only_a_model_that_can_choose_gets_tools() -> None:
    assert offered(chat(BUILTIN), SYSTEM).plan(None, (), None).tools == ()
    assert offered(chat(MUTE), SYSTEM).plan(None, (), None).request("hi")["input"].keys() == {"messages"}
    plan = offered(chat(GOOD), SYSTEM, POST).plan(None, (), None)
    assert [tool.name for tool in plan.tools] == ["search_corpus"]
    assert plan.choice == "auto"


@pytest.mark.req("TOOL-58", "ASK-3")
def test_with_nothing_named_the_owner_s_settings_say_which_tools() -> None:
    views = offered(chat(GOOD), SYSTEM, POST).views

    def given(**fields: Any) -> list[str]:
        mesh = Offered(views, OWN, Path("/home/hearthnet.toml"), (), ToolSettings(**fields))
        return [tool.name for tool in mesh.plan(None, (), None).tools]

    assert given(default_set=("market_post", "translate")) == ["market_post"]
    assert given(enabled=False) == given(default_set=()) == []
    off = Offered(views, OWN, Path("/home/hearthnet.toml"), (), ToolSettings(enabled=False))
    for arguments in (("system", (), None), (None, ("market_post",), None)):
        assert "switched off on this node" in refused(off, *arguments).message


@pytest.mark.req("TOOL-51")
def test_of_several_named_tools_one_that_is_not_there_is_told_and_the_others_are_given() -> None:
    mesh = offered(chat(GOOD), SYSTEM, POST)
    plan = mesh.plan(None, ("translate", "market_post"), None)
    assert [tool.name for tool in plan.tools] == ["market_post"]
    assert plan.choice == {"name": "market_post"}
    assert plan.notices == ("the tool translate is not available: nobody offers trans.text now",)
    alone = refused(mesh, None, ("translate",), None)
    assert (alone.code, alone.exit_status) == ("not_found", 5)
    assert "translate is not available: nobody offers trans.text now; see: hearthnet tools" in alone.message


def test_the_better_model_is_asked_and_a_named_one_before_it() -> None:
    mesh = offered(chat(BUILTIN), chat(MUTE), chat(GOOD), SYSTEM)
    assert mesh.plan(None, (), None).model.name == "good"
    assert mesh.plan("system", (), "small").model.name == "small"
    assert mesh.plan(None, (), "best").model.name == "good"


def test_several_tools_are_a_choice_for_those_who_can_choose() -> None:
    names = ("market_post", "list_marketplace")
    listing: OneOffer = ("market.list@1.0", {})
    assert offered(chat(GOOD), POST, listing).plan(None, names, None).choice == "required"
    assert (
        "small cannot choose among tools"
        in refused(offered(chat(BUILTIN), POST, listing), None, names, None).message
    )


def test_the_only_corpus_needs_no_name_and_several_need_one() -> None:
    search = ("search_corpus",)
    assert offered(chat(BUILTIN), SYSTEM).plan(None, search, None).tools[0].bound_params == {
        "corpus": "system"
    }
    assert offered(chat(GOOD), SYSTEM, BEES).plan(None, search, None).tools[0].bound_params == {}
    error = refused(offered(chat(BUILTIN), SYSTEM, BEES), None, search, None)
    assert error.alt == ["bees", "system"]
    assert "name one with --corpus: bees, system" in error.message


@pytest.mark.req("ASK-9")
@pytest.mark.parametrize(
    ("arguments", "message", "alt"),
    [
        (("sytem", (), None), "there is no corpus 'sytem'; did you mean system?", ["system"]),
        (
            (None, ("market_pots",), None),
            "there is no tool 'market_pots'; did you mean market_post or market_update or market_expire?",
            ["market_post", "market_update", "market_expire"],
        ),
        ((None, (), "smal"), "there is no model 'smal'; did you mean small?", ["small"]),
        ((None, (), "x"), "there is no model 'x'; there is small", []),
        (
            (None, ("market_expire",), None),
            "the tool market_expire is not available: nobody offers market.expire now",
            [],
        ),
    ],
)
def test_what_is_not_there_is_answered_with_the_nearest(
    arguments: tuple[Any, ...], message: str, alt: list[str]
) -> None:
    error = refused(offered(chat(BUILTIN), SYSTEM, POST), *arguments)
    assert error.exit_status == 5
    assert message in error.message
    assert error.alt == alt


@pytest.mark.req("ASK-9")
def test_no_model_and_no_corpus_say_what_to_do() -> None:
    for arguments in ((None, (), None), (None, (), "any")):
        message = refused(offered(SYSTEM), *arguments).message
        assert "hearthnet models install" in message
        assert "/home/hearthnet.toml" in message
    assert "nobody offers one" in refused(offered(chat(GOOD)), "system", (), None).message
    assert "mute cannot call tools" in refused(offered(chat(MUTE), SYSTEM), "system", (), None).message


def test_an_offer_says_what_its_model_can() -> None:
    small, good, mute = ModelOffer(BUILTIN), ModelOffer(GOOD), ModelOffer(MUTE)
    assert [small.tools, good.tools, mute.tools] == ["by name", "yes", "no"]
    written = ModelOffer({**GOOD, "tool_mode": "text"})
    assert (written.tools, written.tools_text) == ("yes", "in text")
    assert [small.tools_text, good.tools_text, mute.tools_text] == ["by name", "yes", "no"]
    assert good.names == ["good", "best"]
    assert (good.context, good.languages, good.backend) == (8192, ["en", "de"], "-")


def test_a_stranger_s_offer_of_another_shape_counts_as_not_said() -> None:
    odd = ModelOffer({"model": 3, "models": "x", "ctx": "much", "languages": [1, "en"], "advice": None})
    assert (odd.name, odd.names, odd.context, odd.languages, odd.advice) == ("", [""], 0, ["en"], "")


@pytest.mark.req("ASK-13")
@pytest.mark.parametrize(
    ("others", "tools", "said"),
    [
        ([BUILTIN], (), ", or go on with another model: --model small"),
        ([MUTE, BUILTIN], ("market_post",), ", or go on with another model: --model small"),
        ([MUTE], ("market_post",), ""),
        ([BUILTIN], ("market_post", "list_marketplace"), ""),
        ([], (), ""),
    ],
)
def test_a_model_that_is_lost_is_told_with_another_one_that_could_do_the_same(
    others: list[dict[str, Any]], tools: tuple[str, ...], said: str
) -> None:
    listing: OneOffer = ("market.list@1.0", {})
    mesh = offered(chat(GOOD), *map(chat, others), POST, listing)
    plan = mesh.plan(None, tools, "good")
    lost = HearthNetError("partition", "good cannot be reached", details={"model": "good", "host": "x"})
    told = mesh.explained(lost, plan)
    assert (told.code, told.message) == ("partition", f"good cannot be reached{said}")
    assert told.details == lost.details


@pytest.mark.req("ASK-13", "ASK-14")
def test_model_that_failed_before_is_not_proposed() -> None:
    mesh = offered(chat(GOOD), chat(BUILTIN))
    plan = mesh.plan(None, (), "good")
    lost = HearthNetError("partition", "good cannot be reached", details={"model": "good", "host": "x"})
    assert mesh.explained(lost, plan, ["small"]) is lost


@pytest.mark.req("ASK-13")
@pytest.mark.parametrize(
    "error",
    [
        HearthNetError("partition", "the node is gone"),
        HearthNetError("rate_limited", "slow down", details={"model": "good"}),
    ],
)
def test_other_errors_are_told_as_they_are(error: HearthNetError) -> None:
    mesh = offered(chat(GOOD), chat(BUILTIN))
    assert mesh.explained(error, mesh.plan(None, (), None)) is error


@pytest.mark.req("LLM-43")
def test_a_model_that_is_connected_and_away_is_not_said_to_be_unknown() -> None:
    views = offered(chat(GOOD)).views
    mesh = Offered(views, OWN, Path("/home/hearthnet.toml"), ("toy",))
    away = refused(mesh, None, (), "toy")
    assert away.code == "not_found"
    assert "toy is connected and not offered now; see: hearthnet models test toy" in away.message
    assert "--model good" in away.message
    assert "there is no model 'toy'" in refused(offered(chat(GOOD)), None, (), "toy").message
