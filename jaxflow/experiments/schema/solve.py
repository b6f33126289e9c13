"""How far and how finely is the flow integrated? The `[solve]` tables."""

from typing import Literal

from jaxflow.experiments.schema.base import Count, Positive, Table, Vector

AdaptiveMethod = Literal["tsit5", "dopri8", "kvaerno5"]
FIXED = ("euler", "heun", "rk4")
ADAPTIVE = ("tsit5", "dopri8", "kvaerno5")


class Solve(Table, frozen=True, kw_only=True):
    """Fixed steps `dt`, or adaptive steps within `rtol` and `atol`; saves by steps or by times."""

    t1: Positive
    method: Literal["euler", "heun", "rk4", "tsit5", "dopri8", "kvaerno5"] | None = None
    dt: Positive | None = None
    rtol: Positive | None = None
    atol: Positive | None = None
    save_every: Count | None = None
    save_at: Vector | None = None
    max_steps: Count | None = None


class SteerSolve(Table, frozen=True, kw_only=True):
    """The adaptive solver behind steering; `[control] t1` says how far. No method: see `control.Problem`."""

    method: AdaptiveMethod | None = None
    rtol: Positive = 1e-8
    atol: Positive = 1e-8
