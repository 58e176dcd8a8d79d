"""The contracts that installed packages bring (docs/decisions/0187).

An entry point of the group `hearthnet.contracts` names a Python package whose folder has the files
`name@major.minor.json`. Nothing of it is imported: a package that fails to import would take with it every
process that looks up a name.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import MOST_BYTES, check_usable
from hearthnet.contracts.namespaces import is_home_only, namespace
from hearthnet.core.canonical_json import digest, read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Capability
from hearthnet.core.entry_points import PackageEntry, scan_entry_points
from hearthnet.core.errors import HearthNetError

GROUP: Final = "hearthnet.contracts"
MAX_FILES: Final = 256
"""Maximum of contracts of one package; a package with more has none."""
_MAX_FILE_BYTES: Final = 4 * MOST_BYTES
"""Maximum size of a file, which may have blanks that its canonical form lacks."""
_MAX_SIGNATURE_BYTES: Final = 4096
_DECODER: Final = msgspec.json.Decoder(Contract)
_log = logging.getLogger(__name__)


class PackagedContract(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A contract of an installed package, its file and the package with its version."""

    contract: Contract
    package: str
    path: Path

    @cached_property
    def digest(self) -> str:
        """The digest of the whole contract, by which a node detects a change."""
        return digest(msgspec.to_builtins(self.contract))

    def signature(self) -> bytes | None:
        """Return the beginning of the file of its signature; None if there is none."""
        try:
            with signature_path(self.path).open("rb") as file:
                return file.read(_MAX_SIGNATURE_BYTES)
        except OSError:
            return None


class PackagedContracts:
    """The contracts of installed packages, and the errors of those that are refused."""

    def __init__(self, entries: list[PackageEntry]) -> None:
        self.found: dict[Capability, PackagedContract] = {}
        self.refused: dict[str, str] = {}
        """The error of each refused contract, by `name@major.minor`, its name if two packages have it, or its
        folder.
        """
        claimed: dict[str, list[PackagedContract]] = defaultdict(list)
        for entry in entries:
            for packaged in self._contracts(entry):
                if packaged.path not in [other.path for other in claimed[packaged.contract.name]]:
                    claimed[packaged.contract.name].append(packaged)
        for name, versions in claimed.items():
            packages = sorted({packaged.package for packaged in versions})
            if len(packages) > 1:
                self._refuse(
                    name, f"cannot use {name}: {' and '.join(packages)} both have it; uninstall one of them"
                )
            else:
                self.found |= {packaged.contract.capability: packaged for packaged in versions}

    def versions(self, name: str) -> list[Capability]:
        """Return the versions of `name`, in order.

        Raises:
            HearthNetError: `not_found` with the reason if all of them are refused.
        """
        versions = sorted(capability for capability in self.found if capability.name == name)
        if not versions:
            for refused, text in self.refused.items():
                if refused.partition("@")[0] == name:
                    raise HearthNetError("not_found", text)
        return versions

    def refuse_changed(self, seen: Mapping[str, str], where: Path) -> None:
        """Refuse each contract whose digest differs from that in `seen`, read from `where`."""
        for capability, packaged in list(self.found.items()):
            if seen.get(str(capability), packaged.digest) != packaged.digest:
                self.refuse(
                    capability,
                    "it was another contract when this node first started with it; raise its version, or "
                    f"remove its line from {where} if nothing relies on the former one",
                )

    def refuse(self, capability: Capability, reason: str) -> None:
        """Refuse a contract; `reason` ends with the remedy."""
        packaged = self.found.pop(capability)
        self._refuse(str(capability), f"cannot use {capability} of {packaged.package}: {reason}")

    def _refuse(self, key: str, text: str) -> None:
        self.refused[key] = text
        _log.error("%s", text)

    def _contracts(self, entry: PackageEntry) -> Iterator[PackagedContract]:
        module = entry.point.value.partition(":")[0].strip()
        files = sorted(path for folder in _folders(module) for path in folder.glob("*@*.json"))
        if not 0 < len(files) <= MAX_FILES:
            self._refuse(
                f"{entry.package}:{module}",
                f"cannot use the contracts of {entry.package}: {len(files) or 'no'} files "
                f"name@major.minor.json in {module}; 1 to {MAX_FILES} belong there",
            )
            return
        for path in files:
            try:
                yield PackagedContract(read_contract(path), entry.package, path)
            except HearthNetError as error:
                reason = f"{error.message}; mend it, or uninstall the package"
                self._refuse(path.stem, f"cannot use {path} of {entry.package}: {reason}")


def signature_path(path: Path) -> Path:
    """Return the file of the signature of the contract in `path`."""
    return path.with_suffix(".sig")


def _folders(module: str) -> Iterator[Path]:
    """Iterate over the folders of a Python package, or of the module's package."""
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location, *rest)
        yield folder if folder.is_dir() else folder.parent


def read_contract(path: Path) -> Contract:
    """Return the contract in a file.

    Raises:
        HearthNetError: `bad_request` for a file that has none, one of another name, one in a namespace of
            this project, and one that could not be called.
    """
    try:
        data = path.read_bytes()[: _MAX_FILE_BYTES + 1]
    except OSError as error:
        raise HearthNetError("bad_request", f"it cannot be read: {error.strerror}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise HearthNetError("bad_request", f"it has more than {_MAX_FILE_BYTES} bytes")
    contract = read_json(data, _DECODER)
    refuse_repeated_keys(data)
    if contract.id != path.stem:
        raise HearthNetError("bad_request", f"it is the contract of {contract.id}")
    if not is_home_only(contract.name):
        reserved = namespace(contract.name)
        raise HearthNetError("bad_request", f"{reserved} is a namespace of HearthNet itself")
    check_usable(contract)
    return contract


@cache
def packaged_contracts() -> PackagedContracts:
    """Return the contracts of the installed packages, read at the first use."""
    return PackagedContracts(scan_entry_points().of(GROUP))


def read_seen(path: Path) -> dict[str, str]:
    """Return the digests of contracts in a home's file, by `name@major.minor`.

    Raises:
        HearthNetError: `bad_request` for a damaged file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise HearthNetError("bad_request", f"cannot read {path}: {error}; remove or mend it") from error
