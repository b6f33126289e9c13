"""When does the Gaussian picture hold, and what does it say? The tables of closure, blocks and phase."""

from typing import Annotated, Literal

from msgspec import Meta, field

from jaxflow.experiments.schema.base import Count, Heads, Matrix, Positive, Table, Vector
from jaxflow.experiments.schema.solve import AdaptiveMethod


class Sweep(Table, frozen=True, kw_only=True):
    """The strengths of attention, κ_eff at the start, and the clouds on which they are measured.

    `n` random tokens, drawn `repeats` times; `nodes` Gauss–Hermite nodes per axis, which need no repeat.
    """

    kappa: Annotated[list[Positive], Meta(min_length=1)]
    n: list[Count] = field(default_factory=list)
    nodes: list[Count] = field(default_factory=list)
    repeats: Count = 5


class Steps(Table, frozen=True, kw_only=True):
    """Fixed steps, the same for tokens and for moments."""

    t1: Positive
    dt: Positive
    method: Literal["euler", "heun", "rk4"] = "heun"


class BlockSizes(Table, frozen=True, kw_only=True):
    """`depth` residual blocks, each a step of length `step`, and `n` tokens."""

    depth: Count
    step: Positive
    n: Count


class Case(Table, frozen=True, kw_only=True):
    """One prescribed layer, the same in every block, and what it is called."""

    name: Annotated[str, Meta(pattern=r"\w")]
    B: Heads | None = None
    V: Heads | None = None
    A: Matrix | None = None
    b: Vector | None = None


Range = Annotated[list[float], Meta(min_length=2, max_length=2)]


class Grid(Table, frozen=True, kw_only=True):
    """The layers V = vI, B = bI for `points` values of v and as many of b, ends included."""

    v: Range
    b: Range
    points: Annotated[int, Meta(ge=2)]


class Horizon(Table, frozen=True, kw_only=True):
    """How long every point of the grid is simulated, and how accurately."""

    t1: Positive
    method: AdaptiveMethod = "tsit5"
    rtol: Positive = 1e-8
    atol: Positive = 1e-8
    max_steps: Count = 100_000
