"""What do the theorems on curves of clouds need? The tables of transport, jko, stability, perturbation and limits."""

from typing import Annotated, Literal

from msgspec import Meta

from jaxflow.experiments.schema.base import Count, Heads, NonNegative, Positive, Table
from jaxflow.experiments.schema.flow import Direction
from jaxflow.experiments.schema.weights import Weights

Increasing = Annotated[list[Positive], Meta(min_length=2)]


class Distance(Table, frozen=True, kw_only=True):
    """The weighted distance: time steps, particles per pair of the plan, and `time`, when the heads are taken.

    An absent tolerance is 1e-8, and 1e-5 in float32.
    """

    time: NonNegative = 0.0
    steps: Annotated[int, Meta(ge=4)] = 32
    split: Count = 4
    tolerance: Positive | None = None
    max_iterations: Count = 200


class Scheme(Table, frozen=True, kw_only=True):
    """Minimising movements to `t1`, one run with every step `tau`, and the tolerance of the flow beside them."""

    tau: Annotated[list[Positive], Meta(min_length=3)]
    t1: Positive
    mobility: Literal["frozen", "implicit"] = "frozen"
    direction: Direction = "descend"
    rtol: Positive = 1e-10


class SphereFlow(Table, frozen=True, kw_only=True):
    """The law of tokens on the sphere under tied heads."""

    law: Literal["softmax", "unnormalized", "steepest"] = "softmax"
    direction: Direction = "descend"


class Neighbours(Table, frozen=True, kw_only=True):
    """Clouds near that of `[tokens]`: tokens moved by normal noise of each `size` along the sphere, `repeats` times.

    `together` moves all tokens by the same vector.
    """

    size: Annotated[list[Positive], Meta(min_length=1)]
    repeats: Count = 4
    together: bool = False


class Perturbed(Table, frozen=True, kw_only=True):
    """Heads D + εS and (1 − ε)D for each ε of `eps`; S is symmetric, one for each head or one for all.

    An absent S is drawn at random, with norm 1 for each head.
    """

    eps: Annotated[list[Positive], Meta(min_length=3)]
    S: Heads | None = None


class Minimum(Table, frozen=True, kw_only=True):
    """How long the steepest law runs under the heads of the end, to find an extremum of the energy."""

    t1: Positive
    rtol: Positive = 1e-8


class LimitCase(Table, frozen=True, kw_only=True):
    """Weights, and what they are called."""

    name: Annotated[str, Meta(pattern=r"\w")]
    weights: Weights
