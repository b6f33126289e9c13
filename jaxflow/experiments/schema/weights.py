"""What are the layers, and how do they change with time? One struct per `kind` of `[weights]`.

Tied heads `D` and free heads `B`, `V` are lists of d×d matrices; a single matrix in the file is one head. `heads` is
how many tied heads are drawn at random; a list of such numbers asks for one run with each.
"""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from jaxflow.experiments.schema.base import Count, Heads, Matrix, NonNegative, Positive, Table, Vector

HeadCounts = Count | Annotated[list[Count], Meta(min_length=2)]


class Constant(Table, frozen=True, kw_only=True, tag_field="kind", tag="constant"):
    """The same layer at all times; `heads` draws that many tied heads at random."""

    D: Heads | None = None
    B: Heads | None = None
    V: Heads | None = None
    heads: HeadCounts | None = None
    A: Matrix | None = None
    b: Vector | None = None


class Segment(Table, frozen=True, kw_only=True):
    """One layer of a piecewise schedule, and how long it lasts."""

    duration: Positive
    D: Heads | None = None
    B: Heads | None = None
    V: Heads | None = None
    A: Matrix | None = None
    b: Vector | None = None


class Piecewise(Table, frozen=True, kw_only=True, tag_field="kind", tag="piecewise"):
    """Layers one after the other, each constant while it lasts."""

    segments: Annotated[list[Segment], Meta(min_length=1)]


class OrnsteinUhlenbeck(Table, frozen=True, kw_only=True, tag_field="kind", tag="ou"):
    """Tied heads that diffuse: dD = (mean − D) dt + √noise_var dW, started from `D` or at random."""

    D: Heads | None = None
    heads: HeadCounts | None = None
    noise_var: NonNegative = 2.0
    mean: Matrix | None = None
    A: Matrix | None = None
    b: Vector | None = None


class Oscillating(Table, frozen=True, kw_only=True, tag_field="kind", tag="oscillating"):
    """Tied heads that follow a periodic drive, all in phase or spread over one period."""

    D: Heads | None = None
    heads: HeadCounts | None = None
    phase: Literal["locked", "spread"] = "locked"
    A: Matrix | None = None
    b: Vector | None = None


Weights = Constant | Piecewise | OrnsteinUhlenbeck | Oscillating

Attention = Literal["tied", "free", "none"]


def attention_of(weights: Weights) -> Attention:
    """Which heads these weights have: tied `D`, free `B` and `V`, or none (feed-forward alone)."""
    layer = weights.segments[0] if isinstance(weights, Piecewise) else weights
    if layer.D is not None or (not isinstance(layer, Segment) and layer.heads is not None):
        return "tied"
    return "free" if isinstance(layer, Constant | Segment) and layer.B is not None else "none"


def head_counts(weights: Weights) -> list[int] | None:
    """The numbers of heads that are asked for, one run each; None if there is but one run."""
    heads = None if isinstance(weights, Piecewise) else weights.heads
    return heads if isinstance(heads, list) else None


def with_heads(weights: Weights, heads: int) -> Weights:
    """The same weights with this number of heads drawn at random."""
    assert not isinstance(weights, Piecewise)
    return replace(weights, heads=heads)
