"""The list of all checks. A new capability adds its exact answers here."""

from jaxflow.scenarios.check import Check
from jaxflow.scenarios.densities import CHECKS as DENSITIES
from jaxflow.scenarios.gaussians import CHECKS as GAUSSIANS
from jaxflow.scenarios.regimes import CHECKS as REGIMES
from jaxflow.scenarios.steering import CHECKS as STEERING
from jaxflow.scenarios.theorems import CHECKS as THEOREMS
from jaxflow.scenarios.tokens import CHECKS as TOKENS


def checks() -> tuple[Check, ...]:
    """Every check, the quick ones of each room first."""
    return (*GAUSSIANS, *REGIMES, *TOKENS, *THEOREMS, *DENSITIES, *STEERING)
