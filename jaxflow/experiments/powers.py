"""With which power does an error vanish? The slope of log error against log step, and its standard error."""

import numpy as np
from jaxtyping import Float


def power_law(x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"]) -> tuple[float, float] | tuple[None, None]:
    """(p, standard error) of y ∝ x^p by least squares in logarithms, k ≥ 3; (None, None) unless all are positive."""
    if len(x) < 3 or not (np.min(x) > 0 and np.min(y) > 0 and np.all(np.isfinite(y))):
        return None, None
    u, v = np.log(x) - np.mean(np.log(x)), np.log(y)
    p = float(u @ v / (u @ u))
    left = v - np.mean(v) - p * u
    return p, float(np.sqrt(left @ left / (len(x) - 2) / (u @ u)))
