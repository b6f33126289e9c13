"""How is a start steered to a target? The `[control]` table."""

from typing import Literal

from jaxflow.experiments.schema.base import Count, NonNegative, Positive, Table


class Control(Table, frozen=True, kw_only=True):
    """Piecewise constant controls on `segments` equal pieces of [0, t1]; `allow` names the free matrices.

    An absent number takes the default of its method, see `defaults.CONTROL_DEFAULTS`.
    """

    t1: Positive = 1.0
    allow: str = "ABVb"
    method: Literal["adam", "lbfgs", "gauss-newton", "constructive"] = "adam"
    segments: Count | None = None
    effort: NonNegative | None = None
    iterations: Count | None = None
    learning_rate: Positive | None = None
