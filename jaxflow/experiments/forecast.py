"""What will become of this Gaussian in the long run? The verdict on a constant layer, for the summary."""

from typing import Any

import numpy as np

from jaxflow.gaussian import MomentFlow, blowup_bounds, classify
from jaxflow.gaussian.classify import LARGEST
from jaxflow.measures import Gaussian
from jaxflow.weights import Constant


def forecast(flow: MomentFlow, start: Gaussian) -> dict[str, Any]:
    """`forecast`, `forecast_mean`, `forecast_reason` and bounds of the blow-up time; nothing where no verdict is
    offered (layers that change, more than 24 dimensions, float32)."""
    if not isinstance(flow.weights, Constant) or start.dim > LARGEST or start.factor.dtype != np.float64:
        return {}
    layer = flow.weights.layer
    verdict = classify(layer, start, direction=flow.direction)
    lower, upper = (float(x) for x in blowup_bounds(layer, start, direction=flow.direction))
    return {
        "forecast": verdict.regime,
        "forecast_mean": verdict.mean,
        "forecast_reason": verdict.reason,
        "blowup_not_before": lower if np.isfinite(lower) else None,
        "blowup_not_after": upper if np.isfinite(upper) else None,
    }
