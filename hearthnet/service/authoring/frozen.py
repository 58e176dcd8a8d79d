"""Frozen contracts: files beside a module, which its functions are compared with when their process starts.

See: docs/services.md#frozen-contracts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from hearthnet.contracts import Contract
from hearthnet.contracts.compare import compare
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.service.authoring.function_capability import FunctionCapability
from hearthnet.service.authoring.signature import definition_error

FOLDER: Final = "contracts"
"""The folder of the frozen contracts, beside the module of the functions."""
State = Literal["new", "changed", "unchanged"]


def frozen_file(capability: FunctionCapability, folder: Path | None = None) -> Path:
    """Return the file of a capability's frozen contract, in `folder` or beside its module."""
    return (folder or capability.module.parent / FOLDER) / f"{capability.contract.id}.json"


def freeze(capability: FunctionCapability, folder: Path | None = None) -> State:
    """Write the contract of a capability, and return how it relates to the frozen one.

    Raises:
        OSError: The file cannot be written.
    """
    state, file = frozen_state(capability, folder), frozen_file(capability, folder)
    if state != "unchanged":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(_canonical(capability.contract), indent=2) + b"\n")
    return state


def frozen_state(capability: FunctionCapability, folder: Path | None = None) -> State:
    """Return how the contract of a capability relates to the frozen one, whatever the file's layout."""
    try:
        data = frozen_file(capability, folder).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return "new"
    try:
        same = canonical_json(msgspec.json.decode(data)) == _canonical(capability.contract)
    except (msgspec.DecodeError, HearthNetError):
        return "changed"
    return "unchanged" if same else "changed"


def check_frozen(capability: FunctionCapability) -> None:
    """Check that the contract of a capability is the frozen one, if one is frozen.

    Raises:
        HearthNetError: `schema_mismatch` with file and line of the function, the difference and a remedy.
    """
    if frozen_state(capability) != "changed":
        return
    contract, file = capability.contract, frozen_file(capability)
    change, version = _difference(contract, file)
    anew = "write the file anew with: hearthnet contract freeze"
    remedy = f"provide it as {contract.name}@{version}, or, if nobody uses {contract.version} yet, {anew}"
    error = definition_error(
        capability.function,
        f"is no longer the {contract.id} that is frozen in {file}: {change}; {remedy if version else anew}",
    )
    raise HearthNetError("schema_mismatch", error.message)


def _difference(contract: Contract, file: Path) -> tuple[str, str]:
    """Return how a contract differs from the one in `file`, and the version that it needs, if another."""
    major, minor = contract.major, contract.minor
    try:
        before = msgspec.json.decode(file.read_bytes(), type=Contract)
    except msgspec.DecodeError as error:
        return f"the file is no contract ({error})", ""
    kind, reasons = compare(before, contract)
    if kind == "breaking":
        return "; ".join(reasons), f"{major + 1}.0"
    now, then = msgspec.to_builtins(contract), msgspec.to_builtins(before)
    fields = [name for name in now if now[name] != then[name]]
    return f"another {' and '.join(fields)}", "" if kind == "equal" else f"{major}.{minor + 1}"


def _canonical(contract: Contract) -> bytes:
    value: Any = msgspec.to_builtins(contract)
    return canonical_json(value)
