"""Exact answers from the literature, recomputed: what `jaxflow verify` runs."""

from jaxflow.scenarios.check import Check as Check
from jaxflow.scenarios.check import Result as Result
from jaxflow.scenarios.registry import checks as checks
