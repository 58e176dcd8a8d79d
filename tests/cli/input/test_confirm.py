"""A person is asked on a terminal: only a typed `a` is a yes, and only to what was shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import tty
from collections.abc import Iterator

import msgspec
import pytest

from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import Prepared, Toolbox
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval
from hearthnet.cli.input.confirm import Dialogue, Keyboard, Person, exact_lines
from hearthnet.cli.output import terminal
from hearthnet.core.errors import HearthNetError
from hearthnet.core.visible import exact_json
from tests.helpers.waiting import DEADLINE_SECONDS

NODE = "ed25519:" + "A" * 43
CLIENT_ID = "01JZZZZZZZZZZZZZZZZZZZZZ02"
TOOLS = builtin_tools(["market_post"])
ARGUMENTS = {"category": "offer", "title": "Water\u202e filter", "body": "one\ntwo\x1b[2J"}
PROMPT = "[a]pprove, [e]dit or [r]efuse? "


def pending() -> PendingApproval:
    """A post that waits for a person."""
    prepared = Toolbox(TOOLS)["market_post"].prepare(ARGUMENTS, CLIENT_ID)
    assert isinstance(prepared, Prepared)
    return PendingApproval(
        confirmation_id="c",
        run="r",
        tool_call_id="call_1",
        name="market_post",
        capability="market.post@1.0",
        arguments=ARGUMENTS,
        body=prepared.body,
        arguments_digest=prepared.arguments_digest,
        client_id=CLIENT_ID,
        expires_at=0,
    )


class Desk:
    """A terminal whose ends are both here: `screen` and `keys` for the program, the rest for the test."""

    def __init__(self) -> None:
        self._outside, inside = pty.openpty()
        tty.setcbreak(inside)
        self.keys = os.fdopen(inside, "r")
        self.screen = os.fdopen(os.dup(inside), "w")
        self.shown = ""

    def type(self, text: str) -> None:
        """A person types."""
        os.write(self._outside, text.encode())

    async def expect(self, text: str, times: int = 1) -> None:
        """Waits until `text` was shown that often."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.shown.count(text) < times:
                self.shown += (await loop.run_in_executor(None, os.read, self._outside, 65536)).decode()

    def close(self) -> None:
        """Takes the terminal away."""
        self.screen.close()
        self.keys.close()
        with contextlib.suppress(OSError):
            os.close(self._outside)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


async def decide(desk: Desk, *answers: tuple[str, str, int]) -> Decision | None:
    """What comes of typing each text after its prompt was shown that many times."""
    with Keyboard(desk.keys) as keyboard:
        dialogue = Dialogue(desk.screen, keyboard, NODE, Toolbox(TOOLS)["market_post"])
        asked = asyncio.create_task(dialogue.decide(pending()))
        for prompt, text, times in answers:
            await desk.expect(prompt, times)
            desk.type(text)
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await asked


@pytest.mark.req("ASK-5")
@pytest.mark.asyncio
async def test_all_that_would_be_sent_is_shown_with_hidden_characters_as_codes(desk: Desk) -> None:
    assert await decide(desk, (PROMPT, "a\n", 1)) == Approve()
    assert "market.post@1.0" in desk.shown
    assert "ed25519:AAAA-AAAA-AAAA-AAAA" in desk.shown
    lines = desk.shown.splitlines()
    for name, value in (
        ("category", '"offer"'),
        ("title", '"Water\\u202e filter"'),
        ("body", '"one\\ntwo\\u001b[2J"'),
        ("client_id", f'"{CLIENT_ID}"'),
    ):
        assert f"  {exact_json(name):<11}  {value}" in lines
    assert pending().arguments_digest[:23] in desk.shown
    assert "end of what would be sent: " in desk.shown
    assert "\u202e" not in desk.shown
    assert "\x1b[2J" not in desk.shown


@pytest.mark.req("ASK-5", "ATTACK-44")
def test_names_are_shown_as_exactly_as_values() -> None:
    long = "n" * 200
    lines = exact_lines([("to\u2800", "a"), (long, "b")])
    assert lines == [
        '  "to\\u2800"                "a"',
        f'  "{long}"  "b"',
        "  end of what would be sent: 6 characters in the values",
    ]


@pytest.mark.req("ASK-5", "ATTACK-44")
def test_values_are_written_whole_and_read_back_as_they_are() -> None:
    value = {
        "a b": [
            "x" + " " * 300 + "pay",
            "e" + "\u0301" * 9,
            " end ",
            "\t\n\u202e\U000e0041",
            1.5,
            None,
            'q"\\',
        ]
    }
    text = exact_json(value)
    assert json.loads(text) == value
    assert text.isprintable()
    assert "  " not in text
    assert text.count("\u0301") == 4


@pytest.mark.req("ATTACK-44", "TOOL-49")
def test_letters_from_the_right_do_not_change_the_order_of_values() -> None:
    """Displayed as they stand, 900 and 1 would change places."""
    value = {"range": ["\u05d0", "900", "1", "\u05d1\u0661"]}
    assert exact_json(value) == '{"range":["\\u05d0","900","1","\\u05d1\\u0661"]}'
    assert exact_json("\u05d0 900") == '"\u05d0 900"'
    assert exact_json("\u05d0", beside=True) == '"\\u05d0"'


@pytest.mark.req("ASK-5", "TOOL-49")
@pytest.mark.asyncio
@pytest.mark.parametrize("untrusted", [False, True])
async def test_it_is_said_where_the_model_has_read_what_others_wrote(desk: Desk, *, untrusted: bool) -> None:
    with Keyboard(desk.keys) as keyboard:
        tool = Toolbox(TOOLS)["market_post"]
        asking = asyncio.create_task(
            Dialogue(desk.screen, keyboard, NODE, tool).decide(
                msgspec.structs.replace(pending(), untrusted=untrusted)
            )
        )
        await desk.expect(PROMPT)
        desk.type("r\n")
        assert await asking == Deny()
    assert ("others wrote" in desk.shown) is untrusted


@pytest.mark.req("ASK-5", "TOOL-90")
@pytest.mark.asyncio
@pytest.mark.parametrize("home", ["", "Kitchen\u202e (ed25519:AAAA)"])
@pytest.mark.parametrize(("provider", "which"), [(NODE, "this"), ("ed25519:other", "another")])
async def test_a_question_names_the_home_that_an_effect_is_for(
    desk: Desk, home: str, provider: str, which: str
) -> None:
    with Keyboard(desk.keys) as keyboard:
        dialogue = Dialogue(desk.screen, keyboard, NODE, Toolbox(TOOLS)["market_post"])
        asked = msgspec.structs.replace(pending(), home=home, provider=provider)
        asking = asyncio.create_task(dialogue.decide(asked))
        await desk.expect(PROMPT)
        desk.type("r\n")
        assert await asking == Deny()
    assert (f"  at {which} home: Kitchen\\u202e (ed25519:AAAA)\r\n" in desk.shown) is bool(home)
    assert (" home: " in desk.shown) is bool(home)
    assert "\u202e" not in desk.shown


@pytest.mark.req("ASK-5")
@pytest.mark.asyncio
@pytest.mark.parametrize("word", ["r", "Refuse", "n", "no"])
async def test_a_no_is_a_no(word: str, desk: Desk) -> None:
    assert await decide(desk, (PROMPT, f"{word}\n", 1)) == Deny()


@pytest.mark.req("ASK-6")
@pytest.mark.asyncio
async def test_nothing_but_a_is_a_yes(desk: Desk) -> None:
    typed = ["", "y", "yes", "ok", "aa", "approve!"]
    answers = [(PROMPT, f"{text}\n", count) for count, text in enumerate(typed, start=1)]
    assert await decide(desk, *answers, (PROMPT, "APPROVE\n", len(typed) + 1)) == Approve()


@pytest.mark.req("ASK-6")
@pytest.mark.asyncio
async def test_what_was_typed_before_the_question_counts_for_nothing(desk: Desk) -> None:
    desk.type("a\n")
    assert await decide(desk, (PROMPT, "r\n", 1)) == Deny()


@pytest.mark.req("ASK-6")
@pytest.mark.asyncio
async def test_what_was_pasted_into_an_edit_does_not_reach_the_question(desk: Desk) -> None:
    pasted = "\n".join(["info", "Pasted", "", "", "", "a", "a", ""])
    decision = await decide(desk, (PROMPT, "e\n", 1), ("category (", pasted, 1), (PROMPT, "r\n", 2))
    assert decision == Deny()
    assert '"Pasted"' in desk.shown


@pytest.mark.req("ASK-5")
@pytest.mark.asyncio
async def test_an_edit_goes_field_by_field_and_is_shown_again_before_the_yes(desk: Desk) -> None:
    decision = await decide(
        desk,
        (PROMPT, "e\n", 1),
        ("category (offer, request, info, emergency)", "request\n", 1),
        ("title [", "Filter wanted\n", 1),
        ("body [", "\n", 1),
        ("tags (separated by commas) [", "water, lend\n", 1),
        ("ttl_seconds [", "3600\n", 1),
        (PROMPT, "a\n", 2),
    )
    changed = {
        "category": "request",
        "title": "Filter wanted",
        "tags": ["water", "lend"],
        "ttl_seconds": 3600,
    }
    assert decision == Edit({**ARGUMENTS, **changed})
    again = desk.shown.rpartition("Exactly this would be sent:")[2]
    for value in ('"request"', '"Filter wanted"', '["water","lend"]', "3600", CLIENT_ID):
        assert value in again
    prepared = Toolbox(TOOLS)["market_post"].prepare({**ARGUMENTS, **changed}, CLIENT_ID)
    assert isinstance(prepared, Prepared)
    assert f"digest {prepared.arguments_digest[:23]}" in again


@pytest.mark.req("ASK-5")
@pytest.mark.asyncio
async def test_an_edit_that_is_not_valid_is_said_and_asked_again(desk: Desk) -> None:
    decision = await decide(
        desk,
        (PROMPT, "e\n", 1),
        ("category (", "offr\n", 1),
        ("title [", "-\n", 1),
        ("title cannot be left out", "\n", 1),
        ("body [", "\n", 1),
        ("tags (", "\n", 1),
        ("ttl_seconds [", "soon\n", 1),
        ("not a value that ttl_seconds can have", "\n", 1),
        ("invalid_arguments", "info\n", 1),
        ("title [", "\n", 3),
        ("body [", "\n", 2),
        ("tags (", "\n", 2),
        ("ttl_seconds [", "\n", 3),
        (PROMPT, "a\n", 2),
    )
    assert decision == Edit({**ARGUMENTS, "category": "info"})


@pytest.mark.asyncio
async def test_an_edit_that_changes_nothing_is_a_yes_to_what_was_there(desk: Desk) -> None:
    names = ("category (", "title [", "body [", "tags (", "ttl_seconds [")
    keep = [(name, "\n", 1) for name in names]
    assert await decide(desk, (PROMPT, "e\n", 1), *keep, (PROMPT, "a\n", 2)) == Approve()


@pytest.mark.req("ASK-6")
@pytest.mark.asyncio
async def test_the_end_of_the_input_is_no_decision(desk: Desk) -> None:
    read, write = os.pipe()
    os.write(write, b"e\nunfinished")
    os.close(write)
    desk.keys.close()
    desk.keys = os.fdopen(read)
    with Keyboard(desk.keys) as keyboard:
        dialogue = Dialogue(desk.screen, keyboard, NODE, Toolbox(TOOLS)["market_post"])
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await dialogue.decide(pending()) is None
        assert await keyboard.line() is None


@pytest.mark.req("ASK-7")
@pytest.mark.asyncio
async def test_yes_to_approves_exactly_what_it_names_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("market.post", "market.post@1.0"):
        assert await Person(NODE, TOOLS, [name], can_ask=False).decide(pending()) == Approve()
        said = capsys.readouterr().err
        assert said.startswith("approved by --yes-to market.post: market_post {")
        assert '"title":"Water\\u202e filter"' in said
        assert "\u202e" not in said
    assert await Person(NODE, TOOLS, ["market.expire"], can_ask=False).decide(pending()) is None


@pytest.mark.req("ASK-7", "ATTACK-34")
@pytest.mark.asyncio
async def test_yes_to_is_for_this_home_and_the_chosen_one_alone() -> None:
    for chosen, provider, expected in (
        ("", NODE, Approve()),
        ("", "ed25519:other", None),
        ("ed25519:other", "ed25519:other", Approve()),
        ("ed25519:other", "ed25519:third", None),
    ):
        person = Person(NODE, TOOLS, ["market.post"], can_ask=False, chosen=chosen)
        asked = msgspec.structs.replace(pending(), provider=provider)
        assert await person.decide(asked) == expected


@pytest.mark.req("ASK-6")
@pytest.mark.asyncio
async def test_where_stdin_is_no_terminal_nobody_is_asked() -> None:
    assert await Person(NODE, TOOLS, [], can_ask=True).decide(pending()) is None


def test_yes_to_something_unknown_is_answered_with_the_nearest() -> None:
    with pytest.raises(HearthNetError, match=r"did you mean market\.post") as caught:
        Person(NODE, TOOLS, ["market.pots"], can_ask=True)
    assert caught.value.exit_status == 5


@pytest.mark.asyncio
async def test_calls_are_asked_about_one_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", desk.keys)
    monkeypatch.setattr(terminal, "screen", lambda: desk.screen)
    person = Person(NODE, TOOLS, [], can_ask=True)
    both = [asyncio.create_task(person.decide(pending())) for _ in range(2)]
    await desk.expect(PROMPT)
    assert desk.shown.count("Exactly this would be sent") == 1
    desk.type("a\n")
    await desk.expect(PROMPT, 2)
    assert desk.shown.count("Exactly this would be sent") == 2
    desk.type("r\n")
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await asyncio.gather(*both) == [Approve(), Deny()]
