"""Which law moves the state? The `[flow]` table of particles and of moments."""

from typing import Literal

from jaxflow.experiments.schema.base import Positive, Table

Direction = Literal["descend", "ascend"]


class Flow(Table, frozen=True, kw_only=True):
    """How tokens answer attention; `direction` belongs to tied heads alone, `kappa` is the faintness of noise."""

    law: Literal["softmax", "unnormalized", "steepest", "hardmax"] = "softmax"
    direction: Direction | None = None
    geometry: Literal["sphere", "euclidean"] = "sphere"
    normalization: Literal["post", "pre", "peri"] | None = None
    kappa: Positive | None = None
    causal: bool = False
    kernel: Literal["auto", "dense", "chunked", "harmonic"] = "auto"
    kernel_tolerance: Positive | None = None


class MomentFlow(Table, frozen=True, kw_only=True):
    """The sign of tied heads; moments have no other choice to make."""

    direction: Direction | None = None
