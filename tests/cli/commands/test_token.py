"""Tokens from the command line: made, shown, revoked; against a running node."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hearthnet.core.times import now_ms
from hearthnet.trust.authorization import token as tokens
from tests.cli.conftest import Here, Village

pytestmark = pytest.mark.e2e
LISTING = '{"params":{},"input":{}}'


@pytest.mark.req("CLI-15")
def test_a_token_says_what_was_asked_for_and_is_worthless_when_revoked(
    village: Village, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = village.at()
    limits = ["--calls", "5", "--effects", "0", "--per-minute", "30"]
    only = ["--corpus", "manuals", "--only", "model=small", "--only", "model=large"]
    issue = ["token", "issue", "--to", "cellar", "--cap", "community.sync@1.0", "--ttl", "10m"]
    assert here(*issue, *only, *limits, *at) == 0
    text = here.out.strip()
    claims = tokens.decode(text)
    assert claims.sub == village.household.key("cellar").node_id
    assert claims.iss == village.household.key().node_id
    assert claims.exp - claims.nbf == 600
    scope = claims.scope
    assert scope.params_constraints == {"corpus": ["manuals"], "model": ["small", "large"]}
    assert (scope.max_calls_total, scope.max_effects, scope.rate_limit_per_minute) == (5, 0, 30)
    assert here.err.startswith("for cellar (ed25519:")
    assert f"hearthnet token revoke {claims.jti}" in here.err

    (tmp_path / "token").write_text(text + "\n")
    assert here("token", "show", f"@{tmp_path / 'token'}", *at) == 0
    first, *rows = here.out.splitlines()
    assert first == f"{claims.jti} can be used"
    words = [row.split() for row in rows]
    assert ["covers", "community.sync@1.0"] in words
    assert ["only", "model", '"small"', "or", '"large"'] in words
    assert ["calls", "at", "each", "node", "5"] in words

    monkeypatch.setattr("sys.stdin", io.StringIO(text + "\n"))
    assert here("token", "revoke", "-", *at) == 0
    assert "providers refuse it" in here.out
    page = here.json("token", "show", text, *at)
    assert (page["active"], page["reason"]) == (False, "token_revoked")
    assert here("token", "show", text, *at) == 0
    assert here.out.startswith(f"{claims.jti} cannot be used: token_revoked\n")


@pytest.mark.req("CLI-15")
def test_a_token_is_revoked_by_its_id_also_one_of_somebody_else(village: Village, here: Here) -> None:
    at, household = village.at(), village.household
    issued = here.json("token", "issue", "--to", "attic", "--cap", "community.sync", *at)
    barns = tokens.mint(
        household.key("barn"),
        subject=household.key("attic").node_id,
        audience=household.roster.community_id,
        scope=tokens.Scope(("community.sync",)),
        now_ms=now_ms(),
        ttl_seconds=600,
    )
    for text, options in (
        (issued["token"], ("--reason", "compromise")),
        (barns, ("--issuer", "barn")),
    ):
        assert here.json("token", "show", text, *at)["active"] is True
        token_id = tokens.decode(text).jti
        assert here.json("token", "revoke", token_id, *options, *at)["token_id"] == token_id
        page = here.json("token", "show", text, *at)
        assert (page["active"], page["reason"]) == (False, "token_revoked")


@pytest.mark.req("CLI-15")
def test_a_call_under_a_token_is_judged_by_it(village: Village, here: Here, tmp_path: Path) -> None:
    at = village.at()
    sync = ["call", "community.sync", "--body", '{"params":{},"input":{"heads":{}}}']
    for capability, status in (("community.sync", 0), ("community.join", 4)):
        issued = here.json("token", "issue", "--to", "founder", "--cap", capability, *at)
        (tmp_path / "token").write_text(issued["token"])
        assert here(*sync, "--token", f"@{tmp_path / 'token'}", *at) == status, here.err
    assert "the token does not cover community.sync@1.0" in here.err


@pytest.mark.req("CLI-5", "CLI-15")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["token", "issue", "--cap", "rag.query"], 2, "--to"),
        (["token", "issue", "--to", "celar", "--cap", "rag.query"], 5, "did you mean cellar"),
        (["token", "issue", "--to", "cellar", "--cap", "rag.qery"], 5, "did you mean rag.query"),
        (["token", "issue", "--to", "cellar", "--cap", "rag"], 2, "is not a capability"),
        (["token", "issue", "--to", "cellar", "--cap", "rag.query", "--ttl", "2d"], 2, "1 s to 24 h"),
        (["token", "issue", "--to", "cellar", "--cap", "rag.query", "--only", "x"], 2, "is not FIELD=VALUE"),
        (
            ["token", "issue", "--to", "cellar", "--cap", "rag.query", "--only", "A=b"],
            2,
            "params_constraints",
        ),
        (["token", "show", "hello"], 2, "this is no token"),
        (["token", "show", ""], 2, "this is no token"),
        (["token", "show", "@no-such-file"], 5, "there is no file no-such-file"),
        (["token", "revoke", "hntoken://v1/a.b.c"], 4, "copy it whole"),
        (["call", "market.list", "--body", LISTING, "--token", ""], 2, "this is no token"),
    ],
)
def test_what_is_no_token_is_one_line_with_its_exit_code(
    village: Village, here: Here, arguments: list[str], status: int, said: str
) -> None:
    assert here(*arguments, *village.at()) == status
    assert said in here.err
    assert here.err.count("\n") == 1


@pytest.mark.req("CLI-15")
def test_json_of_a_refusal_is_an_error_object(village: Village, here: Here) -> None:
    assert here("token", "show", "hntoken://v1/e30.e30.e30", "--json", *village.at()) == 4
    assert json.loads(here.out)["error"] == "token_invalid"
