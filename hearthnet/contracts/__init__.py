"""What every capability takes, gives and costs: the files in `contracts/`, loaded once (docs/contracts.md).

    contracts().get("rag.query@1.0").check_request(body)

Pure but for reading those files. Nothing here knows a capability by name.
"""

from __future__ import annotations

from hearthnet.contracts.compare import Comparison, compare
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.examples import request_of, unmet
from hearthnet.contracts.loading import Contracts, contracts
from hearthnet.contracts.match import MatchRule
from hearthnet.contracts.schema import Problem, SchemaCheck, compile_schema

__all__ = [
    "Comparison",
    "Contract",
    "Contracts",
    "MatchRule",
    "Problem",
    "SchemaCheck",
    "compare",
    "compile_schema",
    "contracts",
    "request_of",
    "unmet",
]
