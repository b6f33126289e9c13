"""How is a start steered to a target? The `[control]` table."""

from typing import Annotated, Literal

from msgspec import Meta

from jaxflow.experiments.schema.base import Count, NonNegative, Positive, Table

Interval = Annotated[list[Positive], Meta(min_length=2, max_length=2)]


class Bounds(Table, frozen=True, kw_only=True):
    """Largest Frobenius norms of the controls at any time; an absent one is free."""

    A: Positive | None = None
    B: Positive | None = None
    V: Positive | None = None
    b: Positive | None = None


class Control(Table, frozen=True, kw_only=True):
    """Controls in time on [0, t1], or up to a time between the two of `t1`; `allow` names the free matrices.

    An absent number takes the default of its method, see `defaults.CONTROL_DEFAULTS`.
    """

    t1: Positive | Interval = 1.0
    allow: str = "ABVb"
    method: Literal["adam", "lbfgs", "gauss-newton", "cheapest", "constructive"] = "adam"
    controls: Literal["constant", "linear", "fourier", "mlp"] | None = None
    segments: Count | None = None
    heads: Count | None = None
    symmetric_B: bool | None = None
    bounds: Bounds | None = None
    cost: Literal["effort", "kinetic"] | None = None
    cap: Positive | list[Positive] | None = None
    loss: Literal["w2", "kl", "moments"] | None = None
    effort: NonNegative | None = None
    smoothness: NonNegative | None = None
    time_weight: NonNegative | None = None
    iterations: Count | None = None
    learning_rate: Positive | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The bounds that are given, by name."""
        names = "ABVb" if self.bounds is not None else ""
        return {name: r for name in names if (r := getattr(self.bounds, name)) is not None}

    @property
    def earliest(self) -> float:
        """The shortest time the controls may take."""
        return self.t1[0] if isinstance(self.t1, list) else self.t1
