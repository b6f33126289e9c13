"""How are clouds of tokens steered to clouds? The tables of steer_tokens."""

from typing import Literal

from jaxflow.experiments.schema.base import Count, NonNegative, Positive, Table
from jaxflow.experiments.schema.tokens import Tokens

Clouds = Tokens | list[Tokens]
"""One cloud, or several that make up one together, sharing the mass by their numbers of tokens."""


class Pair(Table, frozen=True, kw_only=True):
    """A cloud, and where it is wanted."""

    start: Clouds
    target: Clouds


class TokenControl(Table, frozen=True, kw_only=True):
    """Layers of `heads` heads, constant on `segments` equal pieces of [0, t1]; `allow` names the free matrices.

    An absent number takes the default of its method or loss, see `defaults.TOKEN_DEFAULTS`.
    """

    t1: Positive = 1.0
    allow: str = "ABVb"
    heads: Count = 2
    segments: Count = 5
    loss: Literal["sliced", "energy", "sinkhorn"] = "sliced"
    epsilon: Positive | None = None
    effort: NonNegative = 1e-3
    method: Literal["adam", "lbfgs"] = "lbfgs"
    iterations: Count | None = None
    learning_rate: Positive | None = None


class TokenFlow(Table, frozen=True, kw_only=True):
    """Where the tokens live, and how attention is normalised."""

    geometry: Literal["sphere", "euclidean"] = "sphere"
    law: Literal["softmax", "unnormalized"] = "softmax"


class TokenSteps(Table, frozen=True, kw_only=True):
    """Fixed steps of at most `dt` (absent: a twentieth of `control.t1`), which every segment is cut into."""

    method: Literal["euler", "heun", "rk4"] = "rk4"
    dt: Positive | None = None
