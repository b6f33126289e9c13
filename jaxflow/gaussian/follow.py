"""Where does the covariance go under one constant layer? The moment flow, followed tightly. Host only."""

from jaxflow.gaussian.flow import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import Dopri8, Solution, solve
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction
from jaxflow.weights.schedules import Held


def follow(layer: Layer, start: Gaussian, *, direction: Direction | None, t1: float, rtol: float) -> Solution:
    """The moment flow to t1, or to its blow-up, with atol far below rtol because covariances may become small."""
    flow = MomentFlow(Held(layer=layer), direction)
    return solve(flow, start, t1=t1, method=Dopri8(), rtol=rtol, atol=1e-3 * rtol, max_steps=20_000)
