"""Standing grants and the list of tools from the command line, against a running node."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest

from hearthnet.agent.runtime.grant_store import GrantBook
from hearthnet.cli.commands import grants
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from tests.cli.commands.test_ask import offer, titles
from tests.cli.conftest import Here, Village
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell

pytestmark = pytest.mark.e2e


@pytest.mark.req("TOOL-47", "TOOL-51")
def test_what_is_granted_is_posted_without_a_question_until_it_is_used_or_revoked(
    shell: Shell, model: ScriptedModel, here: Here
) -> None:
    at, only = ("--home", shell.home), ("--only", "input.category=offer")
    granted = here.json("grants", "add", "market_post", "--for", "8h", "--uses", "3", *only, *at)
    assert (granted["state"], granted["uses_left"], granted["capability"]) == ("active", 3, "market.post@1.0")
    assert 7 < (granted["expires_at"] - now_ms()) / 3_600_000 <= 8
    question = "I can lend a kettle, as granted."
    model.turns[question] = [Say(calls=(offer("Kettle as granted"),)), Say("Posted.")]
    done = shell.run("ask", question, "--tool", "market_post")
    assert done.returncode == 0, done.stderr
    assert "a standing grant covers it (use 1)" in done.stdout
    assert titles(shell).count("Kettle as granted") == 1
    assert here.json("grants", "list", *at)["grants"][0]["uses_left"] == 2
    assert here("grants", "list", *at) == 0
    assert "market_post  active  2 of 3 left, until" in here.out
    assert 'only input.category "offer"' in here.out
    assert here.json("grants", "revoke", granted["id"], *at) == {"id": granted["id"], "told_others": True}
    assert here("grants", "revoke", granted["id"], *at) == 5
    assert f"there is no standing grant '{granted['id']}'" in here.err
    assert here("grants", "add", "market_post", "--uses", "1", *at) == 0
    for title, code in ("Kettle of one use", 0), ("Kettle not granted", 7):
        model.turns[title] = [Say(calls=(offer(title),)), Say("Posted.")]
        assert shell.run("ask", title, "--tool", "market_post").returncode == code
    now = titles(shell)
    assert (now.count("Kettle of one use"), now.count("Kettle not granted")) == (1, 0)
    (used,) = here.json("grants", "list", *at)["grants"]
    assert (used["state"], used["uses_left"]) == ("used_up", 0)
    assert here("grants", "revoke", used["id"], *at) == 0
    assert here("grants", "list", *at) == 0
    assert here.out == "nothing is granted; every side effect is asked about\n"


@pytest.mark.req("TOOL-47")
def test_a_grant_is_for_a_tool_with_effects(shell: Shell, here: Here) -> None:
    at = ("--home", shell.home)
    assert here("grants", "add", "list_marketplace", *at) == 2
    assert "has no side effects" in here.err
    assert here("grants", "add", "market_pots", *at) == 5
    assert "there is no tool 'market_pots'; did you mean market_post" in here.err
    assert here("grants") == 0
    assert "hearthnet grants add market_post" in here.out
    for title in ("--for", "8h"), ("--uses", "2"):
        assert here("grants", "add", "market_expire", *title, *at) == 0
    assert here.out.startswith("granted market_expire, 2 times until ")
    book = GrantBook(Home.resolve(shell.home).standing_grants)
    for entry in book.entries():
        book.remove(entry.grant.id)


@pytest.mark.req("TOOL-47", "TOOL-51")
def test_where_nobody_offers_it_there_is_nothing_to_grant(village: Village, here: Here) -> None:
    at = village.at()
    assert here("grants", "add", "market_post", *at) == 5
    assert "nobody offers it now" in here.err
    assert here("grants", "add", "market_post", "--node", "cellar", *at) == 5
    assert "nobody offers it now" in here.err
    assert here.json("grants", "list", *at) == {"grants": []}
    rows = {row["name"]: row for row in here.json("tools", *at)["tools"]}
    assert rows["market_post"]["available"] is False
    assert rows["market_post"]["reason"] == "nobody offers market.post now"
    assert here("tools", *at) == 0
    assert "market_post         market.post@1.0, asks first; not available: nobody" in here.out


@pytest.mark.req("TOOL-47")
def test_a_grant_of_a_tool_that_is_gone_is_shown_as_changed_and_revoked_without_a_node(
    stopped: Shell, here: Here
) -> None:
    from tests.agent.runtime.test_grant_store import entry

    home = Home.resolve(stopped.home)
    kept = entry()
    kept.tool = "gone"
    book = GrantBook(home.standing_grants)
    book.add(kept, 0)
    (row,) = here.json("grants", "list", "--home", stopped.home)["grants"]
    assert row["state"] == "changed"
    assert here("grants", "revoke", row["id"], "--home", stopped.home) == 0
    assert here.out == f"revoked {row['id']}\n"
    assert "the other members were not told" in here.err
    assert book.entries() == []


@pytest.mark.req("TOOL-51")
def test_tools_lists_each_tool_for_scripts_and_as_a_line(shell: Shell, here: Here) -> None:
    rows = {row["name"]: row for row in json.loads(shell.run("tools", "--json").stdout)["tools"]}
    assert rows["search_corpus"]["available"] is True
    assert rows["search_corpus"]["capability"] == "rag.query@1.0"
    assert rows["search_corpus"]["side_effects"] is False
    assert (rows["market_post"]["available"], rows["market_post"]["side_effects"]) == (True, True)
    assert all(row["used"].keys() == {"shown", "called", "unused"} for row in rows.values())
    assert here("tools", "--home", shell.home) == 0
    lines = {line.split()[0]: line for line in here.out.splitlines()}
    assert lines.keys() == rows.keys()
    assert re.match(r"search_corpus +rag\.query@1\.0; available($|;)", lines["search_corpus"])
    assert re.match(r"market_post +market\.post@1\.0, asks first; available($|;)", lines["market_post"])


@pytest.mark.req("TOOL-47")
@pytest.mark.parametrize("hour", [0, 12, 23])
def test_a_grant_without_a_length_ends_at_midnight(hour: int) -> None:
    now = int(datetime(2026, 11, 22, hour, 30).timestamp() * 1000)
    assert grants._midnight(now) == int(datetime(2026, 11, 23).timestamp() * 1000)
