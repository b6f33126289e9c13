"""How does a density on S¹ or S² start, what moves it, and which clouds run beside it? The tables of meanfield."""

from typing import Annotated, Literal

from msgspec import Meta, field

from jaxflow.experiments.schema.base import Count, NonNegative, Positive, Table, Vector
from jaxflow.experiments.schema.flow import Direction
from jaxflow.experiments.schema.tokens import Tokens
from jaxflow.experiments.schema.weights import Weights

Sphere = Literal[2, 3]
"""d of S¹ and S²."""


class Mixture(Table, frozen=True, kw_only=True, tag_field="kind", tag="mixture"):
    """Von Mises–Fisher densities around `centres` with `shares` of the mass (absent: all of it, equally)."""

    dim: Sphere
    degree: Count
    centres: Annotated[list[Vector], Meta(min_length=1)]
    concentration: NonNegative
    shares: list[Positive] | None = None


class Wave(Table, frozen=True, kw_only=True, tag_field="kind", tag="wave"):
    """The uniform density times 1 + size cos(mode φ), on S² 1 + size P_mode(z)."""

    dim: Sphere
    degree: Count
    mode: Count
    size: Annotated[float, Meta(gt=0, le=1)]


class Ripples(Table, frozen=True, kw_only=True, tag_field="kind", tag="ripples"):
    """The uniform density with independent normal waves of degrees 1 to `modes`, of relative size `size`."""

    dim: Sphere
    degree: Count
    modes: Count
    size: Positive


class Smoothed(Table, frozen=True, kw_only=True, tag_field="kind", tag="cloud"):
    """A cloud of tokens, smoothed by Brownian motion over `bandwidth` radians."""

    degree: Count
    tokens: Tokens
    bandwidth: Positive | None = None


Start = Mixture | Wave | Ripples | Smoothed


class Infinite(Table, frozen=True, kw_only=True, tag_field="kind", tag="infinite"):
    """Infinitely many Ornstein–Uhlenbeck heads around the identity, integrated out."""

    noise_var: Positive = 2.0
    initial_var: Positive = 4.0
    stationary: bool = False


DensityWeights = Weights | Infinite


class DensityFlow(Table, frozen=True, kw_only=True):
    """Which law moves the density; absent: `softmax`, or `unnormalized` for infinitely many heads."""

    law: Literal["softmax", "unnormalized", "steepest"] | None = None
    direction: Direction | None = None
    kappa: Positive | None = None
    grid: Count | None = None
    negativity: Positive | None = None


class Clouds(Table, frozen=True, kw_only=True):
    """Clouds of `n` independent tokens of the start, each drawn `repeats` times, and compared up to `degree`."""

    n: list[Count] = field(default_factory=list)
    repeats: Annotated[int, Meta(ge=2)] = 4
    degree: Count = 4
