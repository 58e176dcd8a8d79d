"""The contracts of this installation, each read at its first use.

Those of this project lie in one folder. A name outside its namespaces is looked up in the installed packages
(contracts/packages.py), whose metadata other processes need not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import verify
from hearthnet.contracts.namespaces import is_home_only, is_provider_defined
from hearthnet.core.capability_name import Capability, parse_capability, split_name
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.contracts.packages import PackagedContracts

COMMON: Final = "_common.json"
_REFERENCE: Final = f"{COMMON}#/$defs/"
MAX_FETCHED: Final = 1_024
"""Maximum of contracts learned from providers."""
MAX_FETCHED_BYTES: Final = 8 * 1024 * 1024
"""Maximum of their size in JSON, which takes five to ten times as much memory."""


class Contracts:
    """The contracts in one folder, and of packages; names come from file names, so listing opens no file."""

    def __init__(self, folder: Path, packages: Callable[[], PackagedContracts] | None = None) -> None:
        self._folder = folder
        self._packages = packages
        stems = sorted(path.stem for path in folder.glob("*@*.json"))
        if not stems:
            raise HearthNetError(
                "internal_error", f"there are no contracts in {folder}; install hearthnet again"
            )
        self._known: dict[str, list[Capability]] = {}
        for capability in sorted(map(parse_capability, stems)):
            self._known.setdefault(capability.name, []).append(capability)
        self._loaded: dict[Capability, Contract] = {}
        self._resolved: dict[tuple[str, tuple[int, int] | None], Contract] = {}
        self._fetched: dict[Capability, Contract] = {}
        self._sources: dict[Capability, tuple[str, int]] = {}
        """The provider of each learned contract, and its size."""

    def learn(self, contract: Contract, provider: str = "") -> None:
        """Add a contract received from the node `provider`, empty for this one.

        It replaces an earlier one of the same version, which exists only for names whose versions are their
        author's. Beyond the limits the oldest one is dropped, of the other node that supplied most: one that
        supplies ever new ones displaces its own.

        Raises:
            HearthNetError: As `hearthnet.contracts.dynamic.verify`.
        """
        verify(contract)
        self._forget(contract.capability)
        self._fetched[contract.capability] = contract
        self._sources[contract.capability] = (provider, len(msgspec.json.encode(contract)))
        while len(self._fetched) > MAX_FETCHED or self._fetched_bytes() > MAX_FETCHED_BYTES:
            self._forget(self._displaced())

    def _fetched_bytes(self) -> int:
        return sum(size for _, size in self._sources.values())

    def _forget(self, capability: Capability) -> None:
        self._fetched.pop(capability, None)
        self._sources.pop(capability, None)

    def _displaced(self) -> Capability:
        """Return the oldest contract of the provider that supplied most, in number and size together."""
        shares = dict[str, float]()
        for provider, size in self._sources.values():
            shares[provider] = shares.get(provider, 0.0) + 1 / MAX_FETCHED + size / MAX_FETCHED_BYTES
        largest = max(shares, key=lambda provider: (provider != "", shares[provider]))
        return next(one for one in self._fetched if self._sources[one][0] == largest)

    def has_learned(self, capability: Capability) -> bool:
        """Return whether the contract of exactly this version was learned."""
        return capability in self._fetched

    def has_packaged(self, name: str) -> bool:
        """Return whether an installed package brings contracts of `name`.

        Raises:
            HearthNetError: `not_found` with the reason if all of them are refused.
        """
        return self._packages is not None and is_home_only(name) and bool(self._packages().versions(name))

    def __iter__(self) -> Iterator[Contract]:
        """Iterate over the contracts of this project, by name and version."""
        for versions in self._known.values():
            yield from map(self._load, versions)

    def names(self) -> list[str]:
        """Return the names of all capabilities of this project, without versions, sorted."""
        return list(self._known)

    def nearest(self, name: str) -> list[str]:
        """Return up to three installed names similar to `name`, the most similar first."""
        from difflib import get_close_matches

        return get_close_matches(name.partition("@")[0], self._known, n=3, cutoff=0.6)

    def get(self, identifier: str) -> Contract:
        """Return the contract of exactly `name@major.minor`.

        Raises:
            HearthNetError: `bad_request` for another form; `not_found` for an unknown name, with similar ones
                in `alt`; `schema_mismatch` for an unknown version, with the known ones in `alt`.
        """
        wanted = parse_capability(identifier)
        if is_provider_defined(identifier) and not self.has_packaged(wanted.name):
            return self._find_fetched(wanted.name, wanted[1:])
        if wanted in self._versions(wanted.name):
            return self._load(wanted)
        if wanted in self._fetched:
            return self._fetched[wanted]
        raise self._mismatch(identifier, wanted.name)

    def find(self, name: str, version: tuple[int, int] | None = None) -> Contract:
        """Return the newest contract of `name` that serves `version`.

        It has the same major version and the highest minor version from that one up. Without `version`, the
        version in `name` is used, otherwise the newest of all.

        Raises:
            HearthNetError: As `get`.
        """
        known = self._resolved.get((name, version))
        if known is not None:
            return known
        bare, own = split_name(name)
        wanted = version or own
        if is_provider_defined(bare) and not self.has_packaged(bare):
            return self._find_fetched(bare, wanted)
        for capability in reversed(self._versions(bare)):
            if wanted is None or capability.serves(Capability(bare, *wanted)):
                found = self._resolved[name, version] = self._load(capability)
                return found
        # A package's author may write the next version as a function (docs/services.md#a-function).
        if wanted is not None and Capability(bare, *wanted) in self._fetched:
            return self._fetched[Capability(bare, *wanted)]
        raise self._mismatch(f"{bare}@{'.'.join(map(str, wanted or ()))}", bare)

    def _find_fetched(self, name: str, version: tuple[int, int] | None) -> Contract:
        """Return the contract learned last, of that version if one is given."""
        for capability in reversed(self._fetched):
            if capability.name == name and version in (None, capability[1:]):
                return self._fetched[capability]
        requested = name if version is None else f"{name}@{version[0]}.{version[1]}"
        raise self._unknown(name, f"nobody has told what {requested} takes")

    def _versions(self, name: str) -> list[Capability]:
        if name not in self._known:
            if self._packages and self.has_packaged(name):
                return self._packages().versions(name)
            raise self._unknown(name, f"there is no capability {name!r}")
        return self._known[name]

    def _unknown(self, name: str, text: str) -> HearthNetError:
        near = self.nearest(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "see: hearthnet caps"
        return HearthNetError("not_found", f"{text}; {hint}", alt=near)

    def _mismatch(self, identifier: str, name: str) -> HearthNetError:
        versions = [str(capability) for capability in self._versions(name)]
        return HearthNetError(
            "schema_mismatch",
            f"{identifier} is not a version known here; there is {', '.join(versions)}",
            alt=versions,
        )

    def _load(self, capability: Capability) -> Contract:
        contract = self._loaded.get(capability)
        if contract is None:
            contract = self._loaded[capability] = self._read(capability)
        return contract

    def _read(self, capability: Capability) -> Contract:
        if self._packages and capability.name not in self._known:
            return self._packages().found[capability].contract
        path = self._folder / f"{capability}.json"
        raw = expand(_parse(path), self._definitions)
        try:
            contract = msgspec.convert(raw, Contract)
        except msgspec.ValidationError as error:
            raise HearthNetError(
                "internal_error", f"{path} is no contract: {error}; install hearthnet again"
            ) from error
        if contract.id != str(capability):
            raise HearthNetError(
                "internal_error", f"{path} holds the contract of {contract.id}; rename one of them"
            )
        return contract

    @cached_property
    def _definitions(self) -> dict[str, Any]:
        definitions: dict[str, Any] = _parse(self._folder / COMMON)["$defs"]
        return definitions


def expand(value: Any, definitions: dict[str, Any]) -> Any:
    """Copy `value` with each reference into the shared definitions replaced by its target.

    Keywords beside a reference override the definition's, so that a field can word its own description.
    """
    if isinstance(value, list):
        return [expand(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    own = {key: expand(item, definitions) for key, item in value.items() if key != "$ref"}
    if reference is None:
        return own
    name = str(reference).removeprefix(_REFERENCE)
    if name not in definitions:
        raise HearthNetError(
            "internal_error", f"no shared definition {reference!r}; a contract may refer to {COMMON} only"
        )
    return {**expand(definitions[name], definitions), **own}


def _parse(path: Path) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise HearthNetError(
            "internal_error", f"cannot read {path}: {error}; install hearthnet again"
        ) from error
    return value


@cache
def contracts() -> Contracts:
    """Return the contracts of this installation, in the package or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_contracts"
    return Contracts(installed if installed.is_dir() else package.parent / "contracts", _packaged)


def _packaged() -> PackagedContracts:
    """Return the contracts of packages; the import of `importlib.metadata` is left to those who need it."""
    from hearthnet.contracts.packages import packaged_contracts

    return packaged_contracts()
