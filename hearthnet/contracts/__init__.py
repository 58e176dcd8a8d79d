"""The contracts of all capabilities, loaded from `contracts/` (docs/contracts.md).

    contracts().get("rag.query@1.0").check_request(body)

No I/O but reading those files. Nothing here depends on a capability's name. The modules `compare` and
`examples` are for changing and testing contracts, not for a running node, and are imported by their own
names.
"""

from __future__ import annotations

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import is_told
from hearthnet.contracts.match import MatchRule
from hearthnet.contracts.registry import Contracts, contracts
from hearthnet.contracts.schema import Problem, SchemaCheck, compile_schema

__all__ = [
    "Contract",
    "Contracts",
    "MatchRule",
    "Problem",
    "SchemaCheck",
    "compile_schema",
    "contracts",
    "is_told",
]
