"""The contracts of all capabilities, loaded from `contracts/` (docs/contracts.md).

    contracts().get("rag.query@1.0").check_request(body)

No I/O but reading those files. Nothing here depends on a capability's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.contracts.contract import Contract
    from hearthnet.contracts.dynamic import is_provider_defined, versioned
    from hearthnet.contracts.match import nearest as nearest_pairs
    from hearthnet.contracts.registry import contracts
    from hearthnet.contracts.schema import SchemaCheck, compile_schema
else:
    __getattr__ = lazy(
        __name__,
        {
            "Contract": "hearthnet.contracts.contract",
            "SchemaCheck": "hearthnet.contracts.schema",
            "compile_schema": "hearthnet.contracts.schema",
            "contracts": "hearthnet.contracts.registry",
            "is_provider_defined": "hearthnet.contracts.dynamic",
            "nearest_pairs": "hearthnet.contracts.match:nearest",
            "versioned": "hearthnet.contracts.dynamic",
        },
    )

__all__ = [
    "Contract",
    "SchemaCheck",
    "compile_schema",
    "contracts",
    "is_provider_defined",
    "nearest_pairs",
    "versioned",
]
