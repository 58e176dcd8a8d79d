"""`hearthnet person remove`: shows devices, corpora and files of a person, and removes them once confirmed.

See: docs/persons.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli.input import yes_no
from hearthnet.cli.input.member_lookup import display_name, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.gateway.auth.home_persons import HomePerson, HomePersons

if TYPE_CHECKING:
    from hearthnet.cli.workflows.person_belongings import Keep


@click.command()
@click.argument("name")
@click.option("--keep-keys", is_flag=True, help="Leave their keys in the folder of this home.")
@click.option(
    "--keep-corpora", is_flag=True, help="Leave their private corpora and files, which nobody can read."
)
@click.option("--keep-shared", is_flag=True, help="Go on sharing what they shared, as a corpus of yours.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def remove(
    name: str,
    keep_keys: bool,
    keep_corpora: bool,
    keep_shared: bool,
    confirmed: bool,
    home: Home,
    json: bool,
) -> None:
    """Remove the person NAME: their pages are cut off at once, their data is removed here.

    Keys, conversations, runs, private corpora and files go. A corpus that they shared is yours then, and
    private until you share it. Posts stay. The name is not used again. Once more, this removes the
    rest.
    """
    from hearthnet.cli.workflows import home_person as workflow
    from hearthnet.cli.workflows.person_belongings import Keep

    keep = Keep(keep_keys, keep_corpora, keep_shared)
    entry = HomePersons(home).find(name) or HomePersons(home).present(name)
    yes_no.confirm(_loss(home, entry, keep), confirmed=confirmed, option="--yes")
    done = workflow.remove(home, entry, keep)
    page = {"name": name, "person": entry.person, "keys_here": keep_keys, **done}
    terminal.result(json, page, lambda: _print_removed(name, done))


def _loss(home: Home, entry: HomePerson, keep: Keep) -> str:
    persons = HomePersons(home)
    devices = roster_of(home).devices(entry.person)
    names = ", ".join(f"{display_name(one.name)} ({one.kind})" for one in devices) or "none"
    fate = (
        "cut off for ever" if persons.person_key(entry.name).exists() else "left, since their key is not here"
    )
    lines = [
        f"Remove {entry.name} from this home? Devices that are {fate}: {names}. Their conversations and runs "
        "are lost.",
        _corpora_in_words(home, entry.name, keep),
    ]
    if keep.keys:
        lines.append(f"Their keys stay in {persons.folder(entry.name)}.")
    elif persons.recovery_key(entry.name).exists():
        lines.append("Their recovery key is removed here, too: without the words on paper they are lost.")
    elif persons.person_key(entry.name).exists():
        lines.append("Their person key is removed here; their recovery words are on paper.")
    return " ".join(lines)


def _corpora_in_words(home: Home, name: str, keep: Keep) -> str:
    from hearthnet.cli.workflows import person_belongings

    try:
        found = person_belongings.look(home, name)
    except HearthNetError as error:
        return f"Their corpora and files cannot be looked at now ({error.message}), and are left."
    private, files = found["private"], found["files"]
    stay = "stay, and nobody reads them" if keep.private else "are removed"
    fate = "stay shared, as yours" if keep.shared else "are not shared any more, and yours"
    shared = ", ".join(f"{one['name']} ({_amount(one)})" for one in found["shared"])
    return (
        f"Private corpora: {private['corpora']} ({_amount(private)}), and {counted(files['count'], 'file')} "
        f"({size(files['size_bytes'])}); these {stay}."
        + (f" Shared corpora {fate}: {shared}." if shared else "")
    )


def _amount(one: dict[str, Any]) -> str:
    return f"{counted(one['docs'], 'document')}, {size(one['size_bytes'])}"


def _print_removed(name: str, done: dict[str, Any]) -> None:
    terminal.line(f"{name} is removed, with {counted(len(done['devices']), 'device')}")
    if done["unfinished"]:
        terminal.info(one_line(done["unfinished"]))
        return
    gone = ("documents_removed", "document"), ("files_removed", "file"), ("runs_removed", "run")
    terminal.line("removed: " + ", ".join(counted(done[count], thing) for count, thing in gone))
    if done["corpora"]:
        terminal.line(f"yours now: {', '.join(done['corpora'])}; see: hearthnet corpus list")
