"""`hearthnet contract`: the contracts of a package.

Contracts are signed, so that other homes may call what the package offers.

See: docs/contracts.md#contracts-of-packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hearthnet.cli.input.options import Commands, json_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import OTHER, HearthNetError

if TYPE_CHECKING:
    from hearthnet.contracts import Contract
    from hearthnet.trust.keys import Identity

_FILE = click.Path(path_type=Path)


@click.group("contract", cls=Commands)
def command() -> None:
    """Contracts of a package of your own: what authors of services need."""


@command.command("key")
@click.argument("file", type=_FILE)
@json_option
def key(file: Path, json: bool) -> None:
    """Make a key for signing contracts, in a new FILE that only you can read.

    Other homes know your packages by this key. Keep it out of the package, and keep a copy: with another
    one they are other packages.
    """
    from hearthnet.bus.session.keyring import create_identity
    from hearthnet.trust.contract_signature import key_label

    try:
        made = create_identity(file)
    except FileExistsError as error:
        raise HearthNetError("bad_request", f"cannot make {file}: it exists; name another file") from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot make {file}: {error.strerror}") from error
    label = key_label(made.node_id)
    terminal.result(
        json,
        {"key": made.node_id, "label": label},
        f"{made.node_id} in {file}; at other homes names begin with experimental.key.{label}.",
    )


@command.command("sign")
@click.argument("paths", type=_FILE, nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--key", "key_file", type=_FILE, required=True, help="The file that hearthnet contract key made."
)
@json_option
def sign(paths: tuple[Path, ...], key_file: Path, json: bool) -> None:
    """Sign contracts, so that other homes may call what they describe.

    PATH is a contract, or a folder of them. Each signature is written beside its contract, as
    NAME@MAJOR.MINOR.sig; ship both in the package, and sign anew after each change.

    \b
      hearthnet contract sign --key ~/keys/hello.key hearthnet_hello/contracts
    """
    from hearthnet.bus.session.keyring import load_identity

    try:
        identity = load_identity(key_file)
    except HearthNetError as error:
        if error.code != "not_found":
            raise
        message = f"there is no key in {key_file}; make one with: hearthnet contract key {key_file}"
        raise HearthNetError("not_found", message) from error
    found = [_signed(path, identity) for path in _files(paths)]
    if json:
        terminal.json_page([{"capability": one.id, "shared": shared.id} for one, shared in found])
        return
    for one, shared in found:
        terminal.line(f"{one.id}: {shared.id}")


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.glob("*@*.json")) if path.is_dir() else [path]
        if not found:
            raise HearthNetError("not_found", f"no contract name@major.minor.json in {path}")
        yield from found


def _signed(path: Path, identity: Identity) -> tuple[Contract, Contract]:
    """Write the signature of one contract; return the contract, and as other homes see it."""
    import msgspec

    from hearthnet.contracts.packages import read_contract, signature_path
    from hearthnet.trust.contract_signature import shared_contract, sign_contract

    try:
        contract = read_contract(path)
        shared = shared_contract(contract, identity.node_id)
        signature = sign_contract(identity, contract)
        signature_path(path).write_bytes(msgspec.json.encode(signature) + b"\n")
    except HearthNetError as error:
        raise HearthNetError(error.code, f"cannot sign {path}: {error.message}") from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot sign {path}: {error.strerror}") from error
    return contract, shared


@command.command("freeze")
@click.argument("source", metavar="MODULE[:SERVICE]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to write. Default: the folder contracts beside the module.",
)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 where a file is missing or differs.")
def freeze(source: str, out: Path | None, check: bool) -> None:
    """Write each contract of a service to NAME@VERSION.json.

    A service whose contract differs from its file does not start. MODULE is a module that can be imported,
    or a file such as hello.py.
    """
    from hearthnet.service.authoring import frozen
    from hearthnet.service.hosting.loading import load_service

    differs = False
    functions = list(load_service(source).functions())
    if not functions:
        raise HearthNetError("not_found", f"the service of {source} has no functions to freeze")
    for capability in functions:
        file = frozen.frozen_file(capability, out)
        try:
            state = (frozen.frozen_state if check else frozen.freeze)(capability, out)
        except OSError as error:
            message = f"{file} cannot be read or written: {error.strerror}; name another folder with --out"
            raise HearthNetError("bad_request", message) from error
        differs = differs or state != "unchanged"
        terminal.line(f"{state.ljust(9)}  {one_line(str(file))}")
    if check and differs:
        terminal.error("not frozen as they are; write them with: hearthnet contract freeze")
        click.get_current_context().exit(OTHER)
