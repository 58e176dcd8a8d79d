"""Posting, taking along, proving and taking back at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.commands import market_lending
from hearthnet.cli.entry_point import run
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.protocol import frame as frames
from hearthnet.protocol import header as headers
from tests.cli.conftest import Here
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

_OTHER = "01JZZZZZZZZZZZZZZZZZZZZZ99"
AT = ("--place", "52.390561,13.064472", "--place-name", "Mill Lane")


@pytest.fixture(scope="module")
def written(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An export of one post that was changed."""
    posted = shell.json(
        "market", "post", "--title", "Proved", "--body", "By me.", "--tag", "proof", *AT, "--json"
    )
    change = {"client_id": ids.new_ulid(), "event_id": posted["event_id"], "fields": {"body": "By me alone."}}
    shell.json("call", "market.update", "--json", "--body", json.dumps({"params": {}, "input": change}))
    file = tmp_path_factory.mktemp("market") / "export.json"
    said = shell.json("market", "export", file, "--event", posted["event_id"], "--json")
    assert said == {"path": str(file), "events": 2, "posts": 1}
    whole: dict[str, Any] = json.loads(file.read_text())
    return whole


def _verify(here: Here, shell: Shell, folder: Path, whole: Any) -> int:
    file = folder / "export.json"
    file.write_text(json.dumps(whole))
    return here("market", "verify", file, "--roster", shell.home / "community" / "roster.json")


@pytest.mark.req("MARKET-23")
def test_who_wrote_a_post_is_proved_without_a_node(
    here: Here, shell: Shell, written: dict[str, Any], tmp_path: Path
) -> None:
    assert _verify(here, shell, tmp_path, written) == 0
    assert "proved: 2 events" in here.out
    file = tmp_path / "export.json"
    roster = shell.home / "community" / "roster.json"
    assert here.json("market", "verify", file, "--roster", roster) == {"proved": 2}
    frame = ids.unb64(written["events"][0]["frame"])
    assert b"52.391" in frame
    assert b"52.3905" not in frame


@pytest.mark.req("MARKET-23")
@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("events", 0, "data", "title"), "Another", "its frame says otherwise: title"),
        (("events", 0, "data", "tags"), ["x"], "its frame says otherwise: tags"),
        (("events", 0, "client_id"), _OTHER, "its frame says otherwise: client id"),
        (("events", 0, "digest"), "blake3:" + "0" * 64, "its frame says otherwise: arguments"),
        (("events", 0, "author"), ids.node_id(bytes(32)), "its frame says otherwise: author"),
        (("events", 0, "community"), ids.node_id(bytes(32)), "its frame says otherwise: community"),
        (("events", 0, "event_type"), "market.post.expired", "its frame says otherwise: capability"),
        (("events", 0, "frame"), "", "kept back"),
        (("events", 0, "frame"), "AAAA", "proves nothing"),
        (("events", 1, "data", "fields"), {"body": "x"}, "its frame says otherwise: fields"),
        (("events", 1, "data", "target_event_id"), _OTHER, "its frame says otherwise: event_id"),
        (("posts", 0, "body"), "By somebody else.", "not what its author wrote"),
    ],
)
def test_what_was_altered_is_found(
    here: Here,
    shell: Shell,
    written: dict[str, Any],
    tmp_path: Path,
    place: tuple[Any, ...],
    value: Any,
    words: str,
) -> None:
    whole = json.loads(json.dumps(written))
    *way, last = place
    at = whole
    for step in way:
        at = at[step]
    at[last] = value
    assert _verify(here, shell, tmp_path, whole) == 4
    assert words in here.err
    assert here.err.count("\n") == 1
    assert "proved" not in here.out


@pytest.mark.req("MARKET-23")
def test_a_frame_that_somebody_else_signed_proves_nothing(
    here: Here, shell: Shell, written: dict[str, Any], tmp_path: Path
) -> None:
    whole = json.loads(json.dumps(written))
    event = whole["events"][0]
    _, line, body = ids.unb64(event["frame"]).split(b"\n", 2)
    own = load_identity(shell.home / "keys" / "device.key")
    assert frames.signed(headers.decode(line), body, own)  # the author could
    stranger = type(own).generate()
    event["frame"] = ids.b64(frames.signed(headers.decode(line), body, stranger))
    assert _verify(here, shell, tmp_path, whole) == 4
    assert "not the sender's" in here.err


@pytest.mark.req("MARKET-23")
def test_what_is_no_export_is_said_to_be_none(here: Here, shell: Shell, tmp_path: Path) -> None:
    some: list[Any] = [[], {"events": 3}, {"events": [3], "posts": []}]
    for nothing in some:
        assert _verify(here, shell, tmp_path, nothing) == 2
        assert here.err.endswith("is no export of the market\n")
        assert here.err.count("\n") == 1


@pytest.mark.req("MARKET-17", "MARKET-18")
def test_what_one_wrote_is_deleted_with_a_yes(shell: Shell) -> None:
    posted = shell.json("market", "post", "--title", "Gone", "--body", "Soon.", "--json")
    unasked = shell.run("market", "delete", posted["event_id"])
    assert unasked.returncode == 7
    assert "say it with --yes" in unasked.stderr
    told = shell.json("market", "delete", posted["event_id"], "--yes", "--json")
    assert told == {"deleted": 1, "erased": True}
    nameless = shell.run("market", "delete", "--yes")
    assert (nameless.returncode, "name one post, or --all" in nameless.stderr) == (2, True), nameless.stderr
    again = shell.run("market", "delete", posted["event_id"], "--yes")
    assert (again.returncode, "see: market.export" in again.stderr) == (5, True), again.stderr


@pytest.mark.req("MARKET-25")
def test_posts_are_erased_with_a_yes(shell: Shell) -> None:
    posted = [
        shell.json("market", "post", "--title", f"Post {n}", "--body", "Soon.", "--json")["event_id"]
        for n in range(2)
    ]
    assert shell.run("market", "erase", *posted).returncode == 7
    done = shell.run("market", "erase", *posted, "--yes")
    assert (done.returncode, done.stdout) == (0, "erased: 2 posts\n"), done.stderr
    again = shell.run("market", "erase", posted[0], "--yes")
    assert again.returncode == 5, again.stderr


@pytest.mark.req("MARKET-22", "MARKET-17")
def test_a_post_waits_for_the_node_and_is_withdrawn_or_posted_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "later")
    shell.home.mkdir()
    settings = '[server]\nport = 0\n\n[gateway]\nenabled = false\n\n[services]\nenabled = ["market"]\n'
    (shell.home / "hearthnet.toml").write_text(settings)
    with shell.node():
        assert "nothing waits" in shell.run("outbox", "list").stdout
        assert "nothing was sent" in shell.run("outbox", "send").stdout
    kept = shell.json("market", "post", "--title", "Later", "--body", "When you are back.", "--json")
    gone = shell.json("market", "post", "--title", "Never", "--body", "After all.", "--json")
    assert kept["waits"]
    assert [one["input"]["title"] for one in shell.json("outbox", "list", "--json")] == ["Later", "Never"]
    assert "waits until" in shell.run("outbox", "list").stdout
    also = shell.run("market", "post", "--title", "Nor", "--body", "This.")
    assert "waits for the node" in also.stdout
    (third,) = [one for one in shell.json("outbox", "list", "--json") if one["input"]["title"] == "Nor"]
    assert "withdrawn: " in shell.run("outbox", "remove", third["client_id"]).stdout
    assert shell.json("outbox", "remove", gone["client_id"], "--json") == {"client_id": gone["client_id"]}
    assert [one["input"]["title"] for one in shell.json("outbox", "list", "--json")] == ["Later"]
    assert shell.run("outbox", "remove", gone["client_id"]).returncode == 5
    assert [one["client_id"] for one in shell.json("outbox", "list", "--json")] == [kept["client_id"]]
    with shell.node():
        wait_for_sync(lambda: shell.json("outbox", "list", "--json") == [], 30, "the outbox to be empty")
        listed = shell.json("call", "market.list", "--json", "--body", '{"params": {}, "input": {}}')
        assert [post["title"] for post in listed["output"]["posts"]] == ["Later"]
        assert "posted: " in shell.run("market", "post", "--title", "Now", "--body", "You are back.").stdout
        hidden = shell.run("market", "post", "--title", "a\u202eb", "--body", "x")
        assert (hidden.returncode, "U+202E" in hidden.stderr) == (2, True)
        assert shell.json("outbox", "send", "--json") == {"sent": []}
        assert "2 events in " in shell.run("market", "export", tmp_path / "all.json").stdout
        assert "deleted: 2 posts" in shell.run("market", "delete", "--all", "--yes").stdout
        assert json.loads(shell.run("market", "export", "-").stdout)["posts"] == []


@pytest.mark.req("MARKET-2", "MARKET-3", "MARKET-14")
def test_a_post_is_found_changed_and_ended_by_its_author(here: Here, shell: Shell) -> None:
    at = ("--home", shell.home)
    post = ("market", "post", "--category", "info", "--title", "Zither\tor", "--body", "b", *at)
    assert here(*post) == 2, "a tab in a title"
    posted = here.json(*post[:5], "Zither to lend", *post[6:], "--tag", "zither")
    one = posted["event_id"]
    assert here("market", "list", "--category", "info", "--tag", "zither", *at) == 0
    assert f"{one}  info" in here.out
    assert here("market", "update", one, *at) == 2
    assert "say what is to be different" in here.err
    changed = here.json(
        "market", "update", one, "--title", "Zither, tuned", "--tag", "zither", "--days", "2", *at
    )
    assert changed["lamport"] > posted["lamport"]
    assert here("market", "search", "tuned zither", "-k", "1", *at) == 0
    assert "Zither, tuned" in here.out
    (there,) = here.json("market", "list", "--tag", "zither", *at)["posts"]
    assert (there["body"], there["lamport"]) == ("b", changed["lamport"])
    assert here("market", "end", one, "--reason", "fulfilled", "--note", "It has a home.", *at) == 0
    assert here.out == f"ended: {one}\n"
    assert here("market", "list", "--since", str(changed["lamport"]), *at) == 0
    assert here.out == f"ended: {one} (fulfilled: It has a home.)\n"
    assert here("market", "search", "zither", *at) == 0
    assert here.out == "nothing found\n"
    for change in (("end", one), ("update", one, "--body", "c")):
        assert here("market", *change, *at) == 5
        assert f"there is no current post {one}" in here.err
    assert here("market", "update", "nonsense", "--body", "c", *at) == 2
    assert "/input/event_id" in here.err


@pytest.mark.req("MARKET-35", "MARKET-23")
def test_a_post_is_hidden_listed_with_the_reason_and_shown_again(
    here: Here, shell: Shell, tmp_path: Path
) -> None:
    at = ("--home", shell.home)
    posted = here.json("market", "post", "--title", "Zither to smash", "--body", "b", *at)
    one = posted["event_id"]
    assert here("market", "hide", one, *at) == 2
    assert "--reason" in here.err
    assert here("market", "hide", one, "--reason", "It is cruel.", *at) == 0
    assert here.out == f"hidden: {one}\n"
    for again, code, words in (("hide", 2, "hidden already"), ("update", 0, "")):
        given = ("--reason", "r") if again == "hide" else ("--body", "c")
        assert here("market", again, one, *given, *at) == code
        assert words in here.err
    assert here("market", "search", "smash", *at) == 0
    assert here.out == "nothing found\n"
    assert here("market", "list", "--hidden", *at) == 0
    assert "Zither to smash" in here.out
    assert f"hidden: {one} by " in here.out
    assert here.out.endswith(": It is cruel.\n")
    assert here("market", "list", "--since", str(posted["lamport"]), *at) == 0
    assert here.out.startswith(f"hidden: {one} by ")
    (there,) = here.json("market", "list", "--hidden", *at)["posts"]
    assert there["hidden"][0]["reason"] == "It is cruel."
    assert here("market", "unhide", one, "--reason", "Only a picture of one.", *at) == 0
    assert here.out == f"shown again: {one}\n"
    assert here("market", "unhide", one, "--reason", "Once more.", *at) == 5
    assert "is not hidden" in here.err
    file = tmp_path / "hidden.json"
    assert here.json("market", "export", file, "--event", one, *at)["events"] == 4
    roster = shell.home / "community" / "roster.json"
    assert here.json("market", "verify", file, "--roster", roster) == {"proved": 4}
    assert here("market", "end", one, *at) == 0


@pytest.mark.req("CLI-1")
def test_both_commands_say_what_they_are_for(here: Here) -> None:
    for name, words in (("market", "export"), ("outbox", "remove")):
        assert here(name) == 0
        assert words in here.out


@pytest.mark.req("MARKET-39")
def test_an_author_is_muted_listed_and_shown_again(here: Here, shell: Shell) -> None:
    at = ("--home", shell.home)
    neighbour = ids.node_id(b"n" * 32)
    assert here("market", "list", "--muted", *at) == 0
    assert here.out == "nobody is muted; see: hearthnet market mute MEMBER\n"
    assert here("market", "mute", neighbour, *at) == 0
    assert here.out == f"muted: {ids.short_id(neighbour)}\n"
    assert here("market", "mute", neighbour, "--guest", "anna", *at) == 0
    assert here("market", "list", "--muted", *at) == 0
    undo = f"hearthnet market unmute {neighbour}"
    rows = here.out.splitlines()[1:]
    assert [row[row.index("hearthnet") :] for row in rows] == [undo, f"{undo} --guest anna"]
    for row, words in zip(rows, ((), ("--guest", "anna")), strict=True):
        assert here("market", "unmute", neighbour, *words, *at) == 0
        assert ("anna of" in row) == bool(words)
    assert here.json("market", "list", "--muted", *at) == {"muted": []}
    own = load_identity(shell.home / "keys" / "device.key").node_id
    assert here("market", "mute", own, *at) == 2
    assert "cannot mute oneself" in here.err
    assert here("market", "mute", "nobody of that name", *at) == 5


@pytest.mark.req("MARKET-45")
def test_a_post_is_reserved_and_lent_by_its_ids(here: Here, shell: Shell) -> None:
    at = ("--home", shell.home)
    posted = here.json("market", "post", "--title", "Zeppelin to lend", "--body", "b", *at)
    one = posted["event_id"]
    assert here("market", "reserve", one, *at) == 4
    assert "cannot reserve what oneself offers" in here.err
    assert here("market", "reserve", one, "--withdraw", "--give-back", *at) == 2
    assert here("market", "reserve", one, "--withdraw", *at) == 5
    assert here("market", "lend", "promise", one, one, *at) == 5
    assert "no such reservation" in here.err
    assert here("market", "lend", "sell", one, one, *at) == 2


@pytest.mark.req("MARKET-45")
def test_open_reservations_are_printed_with_their_ids(
    capsys: pytest.CaptureFixture[str], shell: Shell
) -> None:
    node = ids.node_id(b"n" * 32)
    loans = [
        {"event_id": "R1", "by": node, "guest": "anna", "state": "lent", "note": "Soon\x1b[2J"},
        {"event_id": "R2", "by": node, "state": "refused"},
    ]
    market_lending.print_loans(Home(shell.home), [{"event_id": "P1", "loans": loans}, {"event_id": "P2"}])
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"lent: P1 R1 by anna of {ids.short_id(node)}: Soon")
    assert "\x1b" not in line


@pytest.mark.req("MARKET-47")
@pytest.mark.parametrize("words", ["52.5", "52.5,x", "91,0", "0,181", "1,2,3"])
def test_a_position_that_is_none_is_a_usage_error(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["market", "list", "--near", words]) == 2
    assert "--near" in capsys.readouterr().err
