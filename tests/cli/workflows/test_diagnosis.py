"""`hearthnet doctor`: planted faults are named, each by its own check, and a sound home has none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from hearthnet import __version__
from hearthnet.backup.history import LastBackup, write_last
from hearthnet.bus.session import keyring
from hearthnet.cli.workflows import builtin_model
from hearthnet.cli.workflows.diagnosis import Problem, checks, diagnose, network, programs, running_node
from hearthnet.cli.workflows.diagnosis.problem import Check, Examined
from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServerState, ServiceState
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats import certificate as leaf_certificate
from hearthnet.supervisor.nats import nats_process
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.found_addresses import FoundAddresses
from hearthnet.supervisor.nats.leaf_links import Upstream, save_upstream
from hearthnet.supervisor.os.lock import home_lock
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.keys import Identity
from tests.helpers.certificates import certificate
from tests.helpers.household import Household, settle
from tests.helpers.shell import Shell
from tests.helpers.small_disk import small_disk
from tests.helpers.waiting import wait_for_sync

HOUR_MS = 3_600_000
MODEL = 'kind = "openai"\nname = "big"\nurl = "http://127.0.0.1:9"\nmodel = "big"'
Plant = Callable[[Household, Path], None]
Server = Callable[[Household, Path], contextlib.AbstractContextManager[tuple[int, str]]]


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder and the attic, none of them running."""
    return settle(tmp_path, {"attic": "member"})


def found(home: Home) -> list[Problem]:
    """The problems but the one that no node runs."""
    return [one for one in diagnose(home) if one.check != "node.running"]


def add(home: Home, text: str) -> None:
    """Adds settings; those of a table that is there replace it."""
    head = text.splitlines()[0]
    tables = [one.strip() for one in home.config_file.read_text().split("\n\n")]
    kept = [one for one in tables if not one.startswith(head)]
    home.config_file.write_text("\n\n".join([*kept, text]) + "\n")


# --- planted in files


def typo(household: Household, _folder: Path) -> None:
    add(household.founder, "[server]\nprot = 4222")


def open_to_others(household: Household, _folder: Path) -> None:
    household.founder.path.chmod(0o777)


def readable_key(household: Household, _folder: Path) -> None:
    household.founder.device_key.chmod(0o644)


def damaged_key(household: Household, _folder: Path) -> None:
    household.founder.device_key.write_text("nonsense")
    household.founder.device_key.chmod(0o600)


def missing_key(household: Household, _folder: Path) -> None:
    household.founder.device_key.unlink()


def damaged_recovery_key(household: Household, _folder: Path) -> None:
    keyring.write_new(household.founder.recovery_key, b"half a k")


def damaged_roster(household: Household, _folder: Path) -> None:
    data = household.founder.roster.read_bytes()
    household.founder.roster.write_bytes(data[: len(data) // 2])


def strange_key(household: Household, _folder: Path) -> None:
    household.founder.device_key.unlink()
    keyring.create_identity(household.founder.device_key)


def damaged_upstream(household: Household, _folder: Path) -> None:
    household.founder.upstream.write_text("{")


def clock_behind(household: Household, _folder: Path) -> None:
    ahead = (now_ms() + 72 * HOUR_MS) / 1000
    os.utime(household.founder.roster, (ahead, ahead))


def clock_before_own_events(household: Household, _folder: Path) -> None:
    author, later = CommunityAuthor(household.roster, household.key()), now_ms() + 72 * HOUR_MS
    key = Identity.generate()
    household.happen(author.invite(key, display_name="Mill", expires_at=later + HOUR_MS, now_ms=later))


def backup_disk_gone(household: Household, folder: Path) -> None:
    add(household.founder, f'[backup]\nfolder = "{folder / "unplugged"}"')


def backup_failed(household: Household, folder: Path) -> None:
    add(household.founder, f'[backup]\nfolder = "{folder}"')
    write_last(household.founder, LastBackup("id", str(folder), now_ms(), now_ms(), "the disk is full"))


def backup_old(household: Household, folder: Path) -> None:
    add(household.founder, f'[backup]\nfolder = "{folder}"\nevery_hours = 1')
    write_last(household.founder, LastBackup("id", str(folder), now_ms() - 5 * HOUR_MS, 0))


def service_missing(household: Household, _folder: Path) -> None:
    add(household.founder, '[services]\nenabled = ["weather"]')


def model_file_missing(household: Household, folder: Path) -> None:
    add(household.founder, '[services]\nenabled = ["llm"]')
    add(household.founder, f'[llm]\nmodel_file = "{folder / "large.gguf"}"')


def model_key_unset(household: Household, _folder: Path) -> None:
    add(household.founder, f'[[llm.models]]\n{MODEL}\napi_key_env = "HN_NO_SUCH_KEY"')


def mcp_program_missing(household: Household, _folder: Path) -> None:
    add(household.founder, '[[mcp.servers]]\nname = "notes"\ncommand = ["hearthnet-no-such-program"]')


def mcp_variable_unset(household: Household, _folder: Path) -> None:
    program = 'name = "notes"\ncommand = ["sh"]\nenv = ["HN_NO_SUCH_VARIABLE"]'
    add(household.founder, f"[[mcp.servers]]\n{program}")


def gateway_open_without_tls(household: Household, _folder: Path) -> None:
    add(household.founder, '[gateway]\nhost = "0.0.0.0"\nport = 0')


def certificate_missing(household: Household, _folder: Path) -> None:
    add(household.founder, '[gateway]\nport = 0\ncertificate = "none.pem"')


def certificate_of_another_name(household: Household, folder: Path) -> None:
    pem = certificate(folder, days=(-9, 90))
    add(household.founder, f'[gateway]\nport = 0\ncertificate = "{pem}"\nnames = ["cellar.example"]')


def certificate_ended(household: Household, folder: Path) -> None:
    pem = certificate(folder, days=(-9, -2))
    add(household.founder, f'[gateway]\nport = 0\ncertificate = "{pem}"')


def certificate_ends_soon(household: Household, folder: Path) -> None:
    pem = certificate(folder, days=(-9, 2))
    add(household.founder, f'[gateway]\nport = 0\ncertificate = "{pem}"')


def address_without_a_host(household: Household, _folder: Path) -> None:
    add(household.founder, '[community]\nport = 0\naddress = "no-such-home.invalid"')


def address_of_another_computer(household: Household, _folder: Path) -> None:
    add(household.founder, '[community]\nport = 0\naddress = "203.0.113.9:7422"')


def nobody_at_the_upstream(household: Household, _folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    save_upstream(household["attic"], Upstream(f"127.0.0.1:{port}"))


def upstream_without_a_name(household: Household, _folder: Path) -> None:
    save_upstream(household["attic"], Upstream("no-such-home.invalid:7422", "0" * 64, "pem"))


PLANTED: list[tuple[str, Plant]] = [
    ("home.settings", typo),
    ("home.trust", open_to_others),
    ("keys.device", readable_key),
    ("keys.device", damaged_key),
    ("keys.device", missing_key),
    ("keys.recovery", damaged_recovery_key),
    ("community.roster", damaged_roster),
    ("community.roster", strange_key),
    ("community.upstream", damaged_upstream),
    ("clock", clock_behind),
    ("clock", clock_before_own_events),
    ("backup.folder", backup_disk_gone),
    ("backup.last", backup_failed),
    ("backup.last", backup_old),
    ("services.installed", service_missing),
    ("model.file", model_file_missing),
    ("model.key", model_key_unset),
    ("mcp.program", mcp_program_missing),
    ("mcp.environment", mcp_variable_unset),
    ("gateway.certificate", gateway_open_without_tls),
    ("gateway.certificate", certificate_missing),
    ("gateway.certificate", certificate_of_another_name),
    ("gateway.certificate", certificate_ended),
    ("gateway.certificate", certificate_ends_soon),
    ("community.address", address_without_a_host),
    ("community.address", address_of_another_computer),
]
WARNINGS = (backup_old, certificate_ends_soon, address_of_another_computer)


@pytest.mark.req("DOCTOR-1")
@pytest.mark.parametrize(("check", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_fault_is_named_alone(
    check: str, plant: Plant, household: Household, tmp_path: Path
) -> None:
    add(household.founder, '[community]\nhost = "0.0.0.0"\nport = 0')
    assert found(household.founder) == [], "a sound home has no problem"
    plant(household, tmp_path)
    (problem,) = found(household.founder)
    assert (problem.check, problem.severity) == (check, "warning" if plant in WARNINGS else "fault")
    assert problem.cause
    assert problem.remedy


@pytest.mark.req("DOCTOR-1")
def test_a_home_that_was_put_out_is_told_so(household: Household) -> None:
    household.revoke("attic")
    (problem,) = found(household["attic"])
    assert problem.check == "community.roster"
    assert "invite" in problem.remedy


@pytest.mark.req("DOCTOR-1")
def test_a_community_that_others_cannot_reach_is_a_warning(household: Household) -> None:
    (problem,) = found(household.founder)
    assert (problem.check, problem.severity) == ("community.address", "warning")


# --- planted in the network


@contextlib.contextmanager
def silent(_household: Household, _folder: Path) -> Iterator[tuple[int, str]]:
    """A port that takes connections and never answers; no fingerprint fits it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1], "0" * 64


@contextlib.contextmanager
def another_home(household: Household, folder: Path) -> Iterator[tuple[int, str]]:
    """A TLS server with the key of another home."""
    with tls_server(folder) as (port, _):
        yield port, leaf_certificate.ensure(folder / "a.pem", folder / "a.key", ("a",))


@contextlib.contextmanager
def tls_server(folder: Path) -> Iterator[tuple[int, str]]:
    """A TLS server, its port and the fingerprint of its key."""
    pem, key = folder / "other.pem", folder / "other.key"
    fingerprint = leaf_certificate.ensure(pem, key, ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken, _ = listener.accept()
                    with (
                        contextlib.suppress(OSError),
                        context.wrap_socket(taken, server_side=True) as secured,
                    ):
                        secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], fingerprint
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.req("DOCTOR-2")
@pytest.mark.parametrize(("check", "plant"), [("link.answer", silent), ("link.certificate", another_home)])
def test_why_the_other_home_is_not_reached(
    check: str, plant: Server, household: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(leaf_certificate, "FETCH_SECONDS", 1.0)
    with plant(household, tmp_path) as server:
        port, fingerprint = server
        save_upstream(household["attic"], Upstream(f"127.0.0.1:{port}", fingerprint, "pem"))
        (problem,) = found(household["attic"])
    assert problem.check == check


@pytest.mark.req("DOCTOR-2")
@pytest.mark.parametrize(
    ("check", "plant"), [("link.answer", nobody_at_the_upstream), ("link.name", upstream_without_a_name)]
)
def test_an_upstream_that_is_not_there_is_told_from_a_name_nobody_knows(
    check: str, plant: Plant, household: Household, tmp_path: Path
) -> None:
    plant(household, tmp_path)
    (problem,) = found(household["attic"])
    assert problem.check == check


@pytest.mark.req("DOCTOR-2", "FIND-3")
def test_home_that_was_found_at_another_address_is_no_problem(household: Household, tmp_path: Path) -> None:
    attic = household["attic"]
    with tls_server(tmp_path) as (port, fingerprint):
        save_upstream(attic, Upstream("no-such-home.invalid:7422", fingerprint, "pem"))
        assert [one.check for one in found(attic)] == ["link.name"]
        FoundAddresses(attic.found_addresses).add(fingerprint, Address("127.0.0.1", port))
        assert found(attic) == []


@pytest.mark.req("DOCTOR-2", "FIND-6")
@pytest.mark.parametrize(
    ("server", "door", "is_named"),
    [
        (ServerState("nats://127.0.0.1:1", 1, 0, 7422, "192.0.2.7:7422", "f"), "", True),
        (ServerState("nats://127.0.0.1:1", 1, 0, 7422, "192.0.2.7:7422", "f", "linked"), "open", True),
        (ServerState("nats://127.0.0.1:1", 1, 0, 7422, "192.0.2.7:7422", "f", "linked"), "", False),
        (ServerState("nats://127.0.0.1:1", 1, 0, 7422, "127.0.0.1:7422"), "", False),
        (ServerState("nats://127.0.0.1:1", 1, 0, 7422, "192.0.2.7:7422", "f", announced=True), "", False),
    ],
)
def test_node_that_others_reach_and_is_not_announced_is_named(
    server: ServerState, door: Literal["", "open"], is_named: bool, household: Household
) -> None:
    examined = Examined(household.founder)
    examined.node = NodeState(os.getpid(), "n", "Kitchen", __version__, server, (), 0, True, door=door)
    checks = [one.check for one in network.announcement(examined)]
    assert checks == (["community.announced"] if is_named else [])
    add(household.founder, "[community]\nport = 0\nzeroconf = false")
    del examined.config
    assert list(network.announcement(examined)) == []


@pytest.mark.req("DOCTOR-2", "DOOR-4")
def test_a_door_that_answers_takes_the_place_of_the_upstream(household: Household, tmp_path: Path) -> None:
    nobody_at_the_upstream(household, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = f"127.0.0.1:{door.getsockname()[1]}"
        author = CommunityAuthor(household.roster, household.key())
        household.happen(author.open_door(place, place, household.key().node_id, now_ms()))
        assert found(household["attic"]) == []
    (problem,) = found(household["attic"])
    assert problem.check == "link.answer"
    assert place in problem.cause


@pytest.mark.req("DOCTOR-2")
@pytest.mark.parametrize("table", ["server", "gateway", "community"])
def test_a_port_that_another_program_uses(table: str, household: Household) -> None:
    home = household.founder
    add(home, '[community]\nhost = "0.0.0.0"\nport = 0')
    with socket.create_server(("127.0.0.1", 0)) as other:
        add(home, f"[{table}]\nport = {other.getsockname()[1]}")
        checks = {one.check: one.severity for one in found(home)}
    assert checks.pop(f"ports.{table}") == ("fault" if table == "community" else "warning")
    assert set(checks) <= {"community.address"}


@pytest.mark.req("DOCTOR-2")
def test_a_disk_with_little_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as mount:
        home = mount("size=20m")
        home.config_file.write_text("[server]\nport = 0\n\n[community]\nport = 0\n\n[gateway]\nport = 0\n")
        (problem,) = found(home)
    assert problem.check == "home.disk"


# --- planted in a running node


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell whose node runs with a service that cannot start, and a model whose server is not there."""
    shell = Shell(tmp_path_factory.mktemp("doctor") / "home")
    (shell.home / "services").mkdir(parents=True)
    (shell.home / "services" / "market").write_text("no folder")
    (shell.home / "hearthnet.toml").write_text(
        '[server]\nport = 0\n\n[community]\nport = 0\n\n[services]\nenabled = ["llm", "market"]\n\n'
        f"[gateway]\nport = 0\n\n[llm]\nbuiltin = false\n\n[[llm.models]]\n{MODEL}\n"
    )
    with shell.node():
        yield shell


def checks_of(shell: Shell) -> list[str]:
    """The checks that report a fault in a running home, by the command."""
    done = shell.run("doctor", "--json")
    assert done.returncode == 1, done.stdout
    problems = json.loads(done.stdout)["problems"]
    return sorted(problem["check"] for problem in problems if problem["severity"] == "fault")


@pytest.mark.req("DOCTOR-3")
def test_the_login_of_a_model_is_not_shown() -> None:
    model = ModelConfig(kind="openai", name="far", url="http://me:secret@box:1/v1", model="m")
    (problem,) = running_node.not_offered([model], ())
    assert "at http://box:1/v1 is not offered" in problem.cause
    assert "secret" not in str(problem)
    assert [*running_node.not_offered([model], {"far"})] == []


@pytest.mark.e2e
@pytest.mark.req("DOCTOR-3")
def test_what_does_not_run_in_a_running_node_is_named(shell: Shell) -> None:
    planted = ["model.offered", "services.state"]
    wait_for_sync(lambda: checks_of(shell) == planted, what=f"{checks_of(shell)} to be {planted}")
    said = shell.run("doctor").stdout
    assert "the service market has ended" in said
    assert "hearthnet logs market" in said
    state = shell.json("status", "--json")
    pids = {one["name"]: one["pid"] for one in state["services"]}
    for pid, expected in (
        (pids["llm"], [*planted, "services.state"]),
        (pids["gateway"], [*planted, "services.state"]),
        (state["server"]["pid"], ["server.answer", "services.state"]),
        (state["pid"], ["node.running", "services.state"]),
    ):
        os.kill(pid, signal.SIGSTOP)
        try:
            assert checks_of(shell) == expected
        finally:
            os.kill(pid, signal.SIGCONT)


# --- planted in what the checks look at


def state(**changes: Any) -> NodeState:
    """A node of this process whose server does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = ServerState(f"nats://127.0.0.1:{port}", port, os.getpid())
    gone = ServiceState("gateway", os.getpid(), "ready", 0, None, (), 0, f"http://127.0.0.1:{port}")
    found = NodeState(os.getpid(), "n", "Kitchen", __version__, server, (gone,), 0, True)
    return msgspec.structs.replace(found, **changes)


def examine(home: Home, node: NodeState | None, *named: Check) -> list[tuple[str, str]]:
    """Check and severity of the problems that `checks` report about a home with that node."""
    examined = Examined(home)
    examined.__dict__["node"] = node
    return [(one.check, one.severity) for check in named for one in check(examined)]


@pytest.mark.req("DOCTOR-3")
def test_what_answers_nothing_in_a_node_is_a_fault(household: Household) -> None:
    looked = running_node.server, running_node.gateway, running_node.bus
    named = ["server.answer", "gateway.answer", "bus.connect"]
    assert examine(household.founder, state(), *looked) == [(name, "fault") for name in named]
    assert examine(household.founder, state(services=()), running_node.gateway) == []


@pytest.mark.req("DOCTOR-3")
def test_services_that_hang_or_say_something(household: Household) -> None:
    began = now_ms() - HOUR_MS
    services = (
        ServiceState("rag", None, "starting", 0, None, (), began),
        ServiceState("llm", None, "ready", 3, None, (), began),
        ServiceState("market", None, "ready", 0, "it waits", (), began),
    )
    found = examine(household.founder, state(services=services), running_node.services)
    assert found == [("services.state", "fault"), ("services.state", "warning"), ("services.note", "warning")]


@pytest.mark.req("DOCTOR-3")
def test_a_node_of_another_version_and_one_that_never_gets_ready(household: Household) -> None:
    home = household.founder
    assert examine(home, state(version="0.0.1"), programs.version) == [("node.version", "warning")]
    assert examine(home, state(package_errors=("odd",)), programs.services) == [
        ("services.packages", "fault")
    ]
    with home_lock(home):
        assert examine(home, None, running_node.is_running) == []
        long_ago = now_ms() / 1000 - 600
        os.utime(home.lock, (long_ago, long_ago))
        assert examine(home, None, running_node.is_running) == [("node.running", "fault")]


@pytest.mark.req("DOCTOR-1")
def test_programs_that_are_missing_or_damaged(
    household: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = household.founder
    program = tmp_path / "nats-server"
    program.write_text("no program")
    monkeypatch.setattr(nats_process, "find_program", lambda: program)
    if os.geteuid():
        assert examine(home, None, programs.server_program) == [("server.program", "fault")]

    def missing() -> Path:
        raise HearthNetError("not_found", "nats-server is not installed; get it")

    monkeypatch.setattr(nats_process, "find_program", missing)
    assert examine(home, None, programs.server_program) == [("server.program", "fault")]
    add(home, '[services]\nenabled = ["llm"]')
    assert examine(home, state(pid=2**22 + 1), programs.builtin_model, programs.environment) == []
    monkeypatch.setattr(builtin_model, "model_file", lambda: None)
    assert examine(home, None, programs.builtin_model) == [("model.file", "warning")]
    monkeypatch.setattr(builtin_model, "model_file", lambda: program)
    assert examine(home, None, programs.builtin_model) == [("model.file", "fault")]


@pytest.mark.req("DOCTOR-1")
def test_a_check_that_fails_ends_no_other(household: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_examined: Examined) -> Iterator[Problem]:
        raise ValueError("odd")

    monkeypatch.setattr(checks, "CHECKS", (broken, running_node.is_running))
    assert [one.check for one in diagnose(household.founder)] == ["doctor.broken", "node.running"]
