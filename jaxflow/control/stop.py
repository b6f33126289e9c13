"""Why did a search for controls end?"""

import equinox as eqx
import numpy as np


class Stop(eqx.Enumeration):
    """Why a search ended. Compare with `==`; works under jit and vmap. `Stop[stop]` is the reason in words."""

    tolerance = "the distance is within the tolerance"
    iterations = "the iterations are used up"
    stalled = "nothing better was found: a minimum, or the end of what rounding resolves"
    bounds = "a control has reached its bound, and W₂ is above the tolerance: the target may need more"
    blow_up = "the moments blew up before the end under all controls that were tried"
    closed_form = "nothing was searched for: the controls are written down"
    nonfinite = "no controls were found under which all tokens stay finite"
    minimum = "a first-order minimum: the optimality is within the tolerance"
    drifting = (
        "no minimum in sight: the cost still falls while variances on the way grow far beyond those of start and "
        "target, towards blow-up; give a cap"
    )
    excluded = "the caps exclude every path found: `room` says how far outside the best one is"
    missed = "no controls that hit were found from this start: `residual` is the smallest error found"


NAMES = (
    "tolerance", "iterations", "stalled", "bounds", "blow_up", "closed_form", "nonfinite", "minimum", "drifting",
    "excluded", "missed",
)  # fmt: skip


def name_of(stop: Stop) -> str:
    """The name of a `Stop`, on the host."""
    value = int(np.asarray(stop._value))
    return next(name for name in NAMES if int(np.asarray(getattr(Stop, name)._value)) == value)
