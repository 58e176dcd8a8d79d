"""The contracts of all capabilities, loaded from `contracts/` (docs/contracts.md).

    contracts().get("rag.query@1.0").check_request(body)

No I/O but reading those files. Nothing here depends on a capability's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.contracts.contract import Contract
    from hearthnet.contracts.dynamic import versioned
    from hearthnet.contracts.match import nearest as nearest_pairs
    from hearthnet.contracts.namespaces import is_provider_defined
    from hearthnet.contracts.registry import contracts
    from hearthnet.contracts.schema import SchemaCheck, compile_schema
    from hearthnet.contracts.supplied_schema import self_contained
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.contracts.contract": "Contract",
            "hearthnet.contracts.dynamic": "versioned",
            "hearthnet.contracts.match": "nearest_pairs=nearest",
            "hearthnet.contracts.namespaces": "is_provider_defined",
            "hearthnet.contracts.registry": "contracts",
            "hearthnet.contracts.schema": "SchemaCheck compile_schema",
            "hearthnet.contracts.supplied_schema": "self_contained",
        },
    )

__all__ = [
    "Contract",
    "SchemaCheck",
    "compile_schema",
    "contracts",
    "is_provider_defined",
    "nearest_pairs",
    "self_contained",
    "versioned",
]
