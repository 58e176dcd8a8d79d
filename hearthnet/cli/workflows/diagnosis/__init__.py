"""The checks of `hearthnet doctor`: the problems of a home, each with its cause and a remedy.

Each check reads, and changes nothing. They run in the order of what depends on what: the files of the home,
the programs that it needs, the network, then the node if it runs.

See: docs/operations.md#finding-problems.
"""

from __future__ import annotations

from hearthnet.cli.workflows.diagnosis.checks import CHECKS, diagnose
from hearthnet.cli.workflows.diagnosis.problem import Problem

__all__ = ["CHECKS", "Problem", "diagnose"]
