"""What every capability takes, gives and costs: the files in `contracts/`, loaded once (docs/contracts.md).

    contracts().get("rag.query@1.0").check_request(body)

Pure but for reading those files. Nothing here knows a capability by name. The modules `compare` and
`examples` serve those who change or try contracts, not a running node, and are imported by their own names.
"""

from __future__ import annotations

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.loading import Contracts, contracts
from hearthnet.contracts.match import MatchRule
from hearthnet.contracts.schema import Problem, SchemaCheck, compile_schema
from hearthnet.contracts.told import is_told

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
