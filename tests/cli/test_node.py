"""The shell interface against a running node: what people read, what scripts parse, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hearthnet.backup.history import LastBackup, write_last
from hearthnet.cli.output.text import as_lines
from hearthnet.core.home import Home
from hearthnet.core.ids import is_ulid, short_id
from hearthnet.core.restore_mark import RestoreMark, write_mark
from hearthnet.core.times import now_ms
from hearthnet.supervisor.services.specs import installed
from tests.helpers.shell import Shell
from tests.services.rag.made import IMAGE, pdf

pytestmark = pytest.mark.e2e
LISTING = '{"params":{},"input":{}}'
NO_CORPUS = '{"params":{"corpus":"sytem"},"input":{"query":"x"}}'
NO_MODEL = '{"params":{"model":"none"},"input":{"messages":[{"role":"user","content":"x"}]}}'


def post(**changed: Any) -> str:
    """The body of a market.post."""
    given = {"category": "offer", "title": "Firewood", "body": "Two stacks.", **changed}
    return json.dumps({"params": {}, "input": given})


def refusal(
    shell: Shell, code: str, status: int, *arguments: str | Path, stdin: str | None = None
) -> dict[str, Any]:
    """The error object of a command that must fail with `code` and `status`, in one clear line."""
    done = shell.run(*arguments, "--json", stdin=stdin)
    error: dict[str, Any] = json.loads(done.stdout)
    error = error.get("data", error)
    line = done.stderr.splitlines()[-1]
    assert (error["error"], done.returncode) == (code, status), done.stderr
    assert line.startswith("hearthnet: ")
    assert "Traceback" not in done.stderr
    return error


# --- status


@pytest.mark.req("CLI-6")
def test_status_for_scripts_has_every_process_and_its_memory(shell: Shell) -> None:
    page = shell.json("status", "--json")
    assert page["ready"] is True
    assert page["node_id"].startswith("ed25519:")
    assert page["server"]["url"].startswith("nats://127.0.0.1:")
    services = {service["name"]: service for service in page["services"]}
    assert services.keys() == {*installed(), "gateway"}
    assert {"llm", "market", "rag"} <= services.keys()
    assert "rag.query@1.0 corpus=system" in services["rag"]["offers"]
    for process in (page, page["server"], *services.values()):
        assert process["memory_bytes"] > 1_000_000


@pytest.mark.req("CLI-6")
def test_status_for_people_is_a_table(shell: Shell) -> None:
    done = shell.run("status")
    assert done.returncode == 0
    first, second, homes, _, headings, *rows = done.stdout.splitlines()
    assert first.endswith(": ready")
    assert "; server nats://127.0.0.1:" in second
    assert homes.startswith("other homes: ")
    assert headings.split() == ["service", "state", "since", "pid", "memory", "restarts", "offers"]
    said = {row.split()[0]: row for row in rows if row[:1].strip()}
    assert said.keys() >= {*installed(), "gateway"}
    assert re.match(r"market +ready +[\d.]+ (ms|s|min|h) +\d+ +\d+ MB +0 +[a-z.]+@", said["market"])
    assert any(row.split() == ["market.post@1.0"] for row in rows)
    assert "\x1b" not in done.stdout


# --- caps


@pytest.mark.req("BACKUP-10", "BACKUP-9")
def test_status_says_when_the_last_backup_was_made(bare: Shell) -> None:
    home, now = Home(bare.home), now_ms()
    assert "backup" not in bare.run("status").stdout
    settings = home.config_file.read_text()
    home.config_file.write_text(f'{settings}\n[backup]\nfolder = "/media/disk"\nevery_hours = 0\n')
    assert "last backup: none yet" in bare.run("status").stdout
    write_last(home, LastBackup("id", "/media/disk", now, now, "no disk"))
    home.config_file.write_text(f'{settings}\n[backup]\nfolder = "/media/disk"\nevery_hours = 24\n')
    write_mark(home, RestoreMark("id", now, now))
    said = bare.run("status").stdout
    assert re.search(r"last backup: .*, in /media/disk\n", said)
    assert "a backup every 24 h to /media/disk" in said
    assert re.search("the backup of .* was not made: no disk", said)
    assert re.search("restored from the backup of .*; it has not heard from another member since", said)
    assert bare.json("status", "--json")["backup"]["schedule"]["every_hours"] == 24


@pytest.mark.req("BUS-28")
def test_caps_watched_says_what_is_there_and_wants_a_name(shell: Shell) -> None:
    with shell.start("caps", "rag.query", "--watch", "--json") as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
    assert (first["event"], first["capability"], first["service"]) == ("appeared", "rag.query@1.0", "rag")
    with shell.start("caps", "market.list", "--watch") as watching:
        assert watching.stdout is not None
        assert "appeared  market.list@1.0" in watching.stdout.readline()
    nameless = shell.run("caps", "--watch")
    assert (nameless.returncode, nameless.stdout) == (2, "")
    assert "name what to watch, such as: hearthnet caps rag.query --watch" in nameless.stderr


@pytest.mark.req("CLI-7")
def test_caps_for_scripts_has_whole_ids_params_and_load(shell: Shell) -> None:
    offers = shell.json("caps", "--json")
    system = next(offer for offer in offers if offer["params"].get("corpus") == "system")
    assert system["capability"] == "rag.query@1.0"
    assert len(system["node"]) == 51
    assert system["service"] == "rag"
    assert system["side_effects"] is False
    assert system["in_flight"] <= system["max_concurrent"]
    assert system["summary"]


@pytest.mark.req("CLI-7")
def test_caps_for_people_and_for_one_name(shell: Shell) -> None:
    everything = shell.run("caps").stdout
    assert "market.post@1.0" in everything
    assert "corpus=system" in everything
    only = shell.run("caps", "market.list").stdout
    assert "market.list@1.0" in only
    assert "market.post" not in only


@pytest.mark.req("CLI-5", "CLI-7")
def test_caps_of_an_unknown_name_gives_the_nearest(shell: Shell) -> None:
    error = refusal(shell, "not_found", 5, "caps", "market.lst")
    assert "market.list" in error["alt_capabilities"]
    error = refusal(shell, "bad_request", 2, "caps", "Market")
    assert "'Market' is not a capability" in error["message"]


@pytest.mark.req("CLI-7")
def test_what_is_known_but_offered_by_nobody_is_not_found(bare: Shell) -> None:
    error = refusal(bare, "not_found", 5, "caps", "llm.chat")
    assert "nobody in the mesh offers llm.chat@2.0 now" in error["message"]
    assert "nobody offers anything yet" in bare.run("caps").stdout
    assert bare.json("caps", "--json") == []
    assert "hearthnet models install" in bare.run("models", "list").stdout
    assert "hearthnet models install" in refusal_of_ask(bare)


def refusal_of_ask(shell: Shell) -> str:
    """What `ask` says where there is no model."""
    done = shell.run("ask", "hello")
    assert done.returncode == 5
    return done.stderr


# --- call


@pytest.mark.req("CLI-8")
def test_a_call_prints_exactly_the_reply(shell: Shell) -> None:
    done = shell.run("call", "rag.list_corpora@1.0", "--body", LISTING, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    reply = json.loads(done.stdout)
    assert reply.keys() == {"output", "meta"}
    listed = shell.json("corpus", "list", "--json")
    assert "system" in {one["name"] for one in listed if one.pop("shared")}
    assert reply["output"] == {"corpora": listed}
    *readable, last = shell.run("call", "rag.list_corpora", "--body", "-", stdin=LISTING).stdout.splitlines()
    assert readable == list(as_lines(reply["output"]))
    assert last.startswith(f"from {short_id(shell.json('status', '--json')['node_id'])}: {{")
    nothing = shell.run("call", "rag.list_corpora", "--body", "-")
    assert (nothing.returncode, nothing.stdout) == (2, "")


@pytest.mark.req("CLI-8")
def test_a_client_id_is_made_and_shown_and_the_same_one_has_no_second_effect(shell: Shell) -> None:
    done = shell.run("call", "market.post", "--body", post(title="Once"), "--json")
    made = done.stderr.split()[1]
    assert is_ulid(made)
    first = json.loads(done.stdout)["output"]["event_id"]
    again = shell.json("call", "market.post", "--body", post(title="Once", client_id=made), "--json")
    assert again["output"]["event_id"] == first
    posts = shell.json("call", "market.list", "--body", LISTING, "--json")["output"]["posts"]
    assert [one["title"] for one in posts].count("Once") == 1


@pytest.mark.req("CLI-3")
def test_what_a_neighbour_wrote_cannot_steer_the_terminal(shell: Shell, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("safe\x1b[2J\u202e words of a neighbour")
    assert shell.run("ingest", letter, "--corpus", "letters").returncode == 0
    body = '{"params": {"corpus": "letters"}, "input": {"query": "neighbour"}}'
    for json_option in ([], ["--json"]):
        shown = shell.run("call", "rag.query", "--body", body, *json_option).stdout
        assert "safe" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize(
    ("name", "body", "code", "status", "said"),
    [
        ("market.list", '{"params": {},\n"input": {,}}', "bad_request", 2, "line 2, column 11"),
        ("market.list", "[]", "bad_request", 2, "object"),
        ("market.list", "{}", "bad_request", 2, "params"),
        ("market.lst", LISTING, "not_found", 5, "did you mean market.list"),
        ("market", LISTING, "bad_request", 2, "is not a capability"),
        ("market.list@9.0", LISTING, "schema_mismatch", 5, "there is market.list@1.0"),
        ("market.post", post(category="ofer"), "bad_request", 2, "/input/category"),
        ("market.post", post(ttl_seconds=1), "bad_request", 2, "/input/ttl_seconds"),
        ("rag.query", NO_CORPUS, "not_found", 5, "corpus 'system'"),
        ("rag.query", "@no-such-file.json", "not_found", 5, "there is no file"),
        ("llm.chat", NO_MODEL, "not_found", 5, "no offer of llm.chat@2.0 fits model 'none'; offered: "),
    ],
)
def test_bad_input_is_one_clear_line_with_its_code(
    shell: Shell, name: str, body: str, code: str, status: int, said: str
) -> None:
    error = refusal(shell, code, status, "call", name, "--body", body)
    assert said in error["message"]


@pytest.mark.req("CLI-5")
def test_a_schema_violation_names_path_and_rule(shell: Shell) -> None:
    error = refusal(shell, "bad_request", 2, "call", "market.post", "--body", post(category="ofer"))
    assert error["details"] == {"path": "/input/category", "rule": "enum"}


@pytest.mark.req("CLI-8")
def test_a_call_that_takes_too_long_ends_with_6(shell: Shell) -> None:
    refusal(shell, "timeout", 6, "call", "market.list", "--body", LISTING, "--timeout", "0.000001")


# --- ingest


@pytest.mark.req("CLI-9")
def test_files_become_a_corpus_that_can_be_asked(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bees.md").write_text("# Keeping bees\n\nBees need water near the hive.\n")
    (tmp_path / "notes" / "picture.png").write_bytes(b"\x89PNG")
    done = shell.run("ingest", tmp_path / "notes", "--corpus", "hobby")
    assert done.returncode == 0, done.stderr
    assert "ingested  notes/bees.md: 1 passage\n" in done.stdout
    assert "1 file, 1 passage in the corpus hobby\n" in done.stdout
    assert "skipped 1" in done.stderr
    assert "picture.png" in done.stderr
    query = '{"params":{"corpus":"hobby"},"input":{"query":"bees water"}}'
    (found,) = shell.json("call", "rag.query", "--body", query, "--json")["output"]["chunks"]
    assert found["metadata"]["doc_title"] == "Keeping bees"


@pytest.mark.req("CLI-9")
def test_one_failing_file_does_not_stop_the_rest(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe binary")
    (tmp_path / "b.txt").write_text("Candles burn for four hours.")
    done = shell.run("ingest", tmp_path / "a.md", tmp_path / "b.txt", "--corpus", "mixed", "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert [Path(one["path"]).name for one in summary["ingested"]] == ["b.txt"]
    assert [(Path(one["path"]).name, one["error"]) for one in summary["failed"]] == [("a.md", "bad_request")]
    plain = shell.run("ingest", tmp_path / "a.md", "--corpus", "mixed")
    assert plain.returncode == 1
    assert plain.stderr == "hearthnet: a.md is not UTF-16-LE text (byte 6); save it as UTF-8\n"


@pytest.mark.req("CLI-9")
def test_a_file_larger_than_is_offered_is_refused_before_it_is_stored(shell: Shell, tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as large:
        large.truncate(40 * 10**6)  # NUL bytes: reading it would find another fault
    (tmp_path / "b.txt").write_text("Lamps want clean glass.")
    done = shell.run("ingest", tmp_path / "a.txt", tmp_path / "b.txt", "--corpus", "sizes")
    assert done.returncode == 1
    private = "this home alone may search it; for every member: hearthnet corpus share sizes\n"
    too_large = "hearthnet: a.txt has 40,000,000 bytes; a document may have 33,554,432: split it\n"
    assert done.stderr == private + too_large
    assert "ingested  b.txt: 1 passage\n" in done.stdout


@pytest.mark.req("CLI-9")
def test_ingesting_shows_a_bar_where_a_person_looks(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Salt\n\nSalt keeps meat.\n")
    with shell.terminal("ingest", tmp_path, "--corpus", "bar") as screen:
        screen.expect("search the corpus bar? [y]es or [n]o? ")
        screen.type("n\n")
        screen.expect("100%")
        screen.expect("1 file, 1 passage in the corpus bar")
        assert screen.end() == 0


@pytest.mark.req("CLI-5", "CLI-9")
@pytest.mark.parametrize(
    ("corpus", "code", "status", "said"),
    [
        ("system", "unauthorized", 4, "the corpus system comes with HearthNet and is read-only"),
        ("Bad Name", "bad_request", 2, "'Bad Name' is no name for a corpus"),
        ("x" * 65, "bad_request", 2, f"'{'x' * 65}' is no name for a corpus"),
    ],
)
def test_a_corpus_that_cannot_be_written_is_refused(
    shell: Shell, tmp_path: Path, corpus: str, code: str, status: int, said: str
) -> None:
    (tmp_path / "a.md").write_text("text")
    error = refusal(shell, code, status, "ingest", tmp_path, "--corpus", corpus)
    assert error["message"].startswith(said)


@pytest.mark.req("CLI-5", "CLI-9")
def test_paths_that_hold_nothing_are_said(shell: Shell, tmp_path: Path) -> None:
    error = refusal(shell, "not_found", 5, "ingest", tmp_path / "nothing", "--corpus", "x")
    assert error["message"] == f"there is no file or folder {tmp_path / 'nothing'}"
    error = refusal(shell, "not_found", 5, "ingest", tmp_path, "--corpus", "x")
    assert error["message"].startswith("there is nothing to ingest: none of *.md, ")


# --- logs


@pytest.mark.req("CLI-10")
def test_logs_of_a_running_node(shell: Shell) -> None:
    assert "ready" in shell.run("logs", "nats-server").stdout
    names = {line.partition(":")[0] for line in shell.run("logs").stdout.splitlines()}
    assert {"market", "rag", "nats-server"} <= names


# --- corpus


@pytest.mark.req("CLI-40", "GATHER-4")
def test_documents_are_replaced_shown_and_removed(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "bread.html"
    path.write_text("<html lang=en><h1>Bread</h1><p>Bake it hot.")
    assert "ingested  bread.html: 1 passage\n" in shell.run("ingest", path, "--corpus", "kitchen").stdout
    for update in ((), ("--update",)):
        again = shell.run("ingest", path, "--corpus", "kitchen", *update)
        assert "unchanged bread.html: 1 passage\n" in again.stdout
    path.write_text("<html lang=en><h1>Bread</h1><p>Bake it long.")
    done = shell.run("ingest", path, "--corpus", "kitchen", "--update")
    assert "replaced  bread.html: 1 passage\n" in done.stdout
    [one] = shell.json("corpus", "show", "kitchen", "--json")["documents"]
    assert (one["title"], one["language"]) == ("Bread", "en")
    assert one["doc_cid"][:23] in shell.run("corpus", "show", "kitchen").stdout
    assert "kitchen" in shell.run("corpus", "list").stdout
    assert {"kitchen", "system"} <= {one["name"] for one in shell.json("corpus", "list", "--json")}
    error = refusal(shell, "not_found", 5, "corpus", "remove", "kitchen", "Soup")
    assert error["message"].startswith("there is no document 'Soup'")
    error = refusal(shell, "unauthorized", 4, "corpus", "remove", "system", "--all")
    assert error["message"].startswith("the corpus system comes with HearthNet and is read-only")
    done = shell.run("corpus", "remove", "kitchen", one["doc_cid"][7:15])
    assert done.stdout == "removed  Bread: 1 passage\n", done.stderr
    error = refusal(shell, "not_found", 5, "corpus", "show", "kitchen")
    assert error["message"].startswith("no corpus 'kitchen' here; ")
    assert "system" in {one["name"] for one in shell.json("corpus", "list", "--json")}
    everywhere = shell.json("corpus", "list", "--everywhere", "--json")
    assert everywhere == shell.json("corpus", "list", "--json"), "there is no other home"
    own = shell.json("status", "--json")["node_id"]
    of_home = shell.json("corpus", "show", f"system@{own}", "--json")
    assert of_home == shell.json("corpus", "show", "system", "--json")


@pytest.mark.req("CLI-40", "RAG-54")
def test_a_corpus_is_shared_and_kept_private_by_its_owner(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Party\n\nBring cake.")
    with shell.terminal("ingest", tmp_path, "--corpus", "party") as screen:
        screen.expect("Let every member of the community search the corpus party? [y]es or [n]o? ")
        screen.type("y\n")
        screen.expect("every member may search it; for this home alone: hearthnet corpus unshare party")
        assert screen.end() == 0

    def is_shared() -> bool:
        return next(
            bool(one["shared"]) for one in shell.json("corpus", "list", "--json") if one["name"] == "party"
        )

    assert is_shared()
    assert shell.json("ingest", tmp_path, "--corpus", "party", "--private", "--json")["shared"] is False
    assert not is_shared()
    assert shell.run("corpus", "share", "party").stdout == (
        "party can be searched by every member of the community\n"
    )
    assert is_shared()
    assert shell.json("corpus", "unshare", "party", "--json") == {
        "corpus": "party",
        "shared": False,
        "copies": False,
    }
    assert "this home" in shell.run("corpus", "list").stdout
    # Removal ends the answer, too.
    assert shell.run("corpus", "share", "party").returncode == 0
    assert shell.run("corpus", "remove", "party", "--all", "--yes").returncode == 0
    assert shell.json("ingest", tmp_path, "--corpus", "party", "--json")["shared"] is False
    assert refusal(shell, "unauthorized", 4, "corpus", "share", "system")["message"]
    assert refusal(shell, "not_found", 5, "corpus", "share", "nothing")["message"]
    assert shell.run("ingest", tmp_path, "--corpus", "personal", "--share").returncode == 4
    assert shell.run("ingest", tmp_path, "--corpus", "personal").returncode == 0
    assert shell.run("corpus", "share", "personal").returncode == 4


@pytest.mark.req("CLI-40", "RAG-35")
def test_pages_that_were_scanned_are_named(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "well.pdf"
    path.write_bytes(pdf(["Dig the well ten metres deep.", IMAGE, IMAGE], title="Wells"))
    done = shell.run("ingest", path, "--corpus", "scans")
    assert "well.pdf: pages 2-3 hold no text (scanned?); ocrmypdf --skip-text adds it" in done.stderr
    assert "Wells: pages 2-3 hold no text (scanned?)" in shell.run("corpus", "show", "scans").stderr
    assert shell.run("corpus", "remove", "scans", "--all", "--yes").returncode == 0


@pytest.mark.req("CLI-40", "CLI-43")
def test_a_whole_corpus_is_removed(shell: Shell, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.md").write_text(f"# Note\n\n{name}")
    assert shell.run("ingest", tmp_path, "--corpus", "notes").returncode == 0
    error = refusal(shell, "bad_request", 2, "corpus", "remove", "notes", "Note")
    assert error["message"].startswith("'Note' stands for 2 documents: blake3:")
    error = refusal(shell, "unauthorized", 7, "corpus", "remove", "notes", "--all")
    assert "say it with --yes" in error["message"]
    with shell.terminal("corpus", "remove", "notes", "--all") as screen:
        screen.expect("Remove the corpus notes with 2 documents? [y]es or [n]o?")
        screen.type("n\n")
        assert screen.end() == 4
    assert "notes" in {one["name"] for one in shell.json("corpus", "list", "--json")}
    gone = shell.json("corpus", "remove", "notes", "--all", "--yes", "--json")
    assert [one["title"] for one in gone["removed"]] == ["Note", "Note"]
    assert "notes" not in {one["name"] for one in shell.json("corpus", "list", "--json")}
    neither = shell.run("corpus", "remove", "notes")
    assert (neither.returncode, "name the documents, or give --all" in neither.stderr) == (2, True)
