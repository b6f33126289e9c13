"""What may a config file say? `Experiment`, a union of one frozen struct per `kind`."""

from typing import Annotated, get_args

from msgspec import Meta, field

from jaxflow.experiments.schema.base import Positive, Table
from jaxflow.experiments.schema.control import Control
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.gaussian import Gaussian
from jaxflow.experiments.schema.meanfield import Clouds, DensityFlow, DensityWeights, Start
from jaxflow.experiments.schema.pretrained import Input, Measurement, Model, Prescribed
from jaxflow.experiments.schema.regimes import BlockSizes, Case, Grid, Horizon, Steps, Sweep
from jaxflow.experiments.schema.solve import Solve, SteerSolve
from jaxflow.experiments.schema.steer_tokens import Pair, TokenControl, TokenFlow, TokenSteps
from jaxflow.experiments.schema.theorems import (
    Distance,
    LimitCase,
    Minimum,
    Neighbours,
    Perturbed,
    Scheme,
    SphereFlow,
)
from jaxflow.experiments.schema.tokens import SteerTokens, Tokens
from jaxflow.experiments.schema.weights import Constant, Weights

# Random keys take 32-bit seeds whatever the precision of the run.
Seed = Annotated[int, Meta(ge=0, lt=2**32)]


class Particles(Table, frozen=True, kw_only=True, tag_field="kind", tag="particles"):
    """A cloud of tokens moved by attention, on `paths` independent random paths."""

    tokens: Tokens
    weights: Weights
    solve: Solve
    flow: Flow = field(default_factory=Flow)
    seed: Seed = 0
    paths: Annotated[int, Meta(ge=1)] = 1


class Moments(Table, frozen=True, kw_only=True, tag_field="kind", tag="moments"):
    """The mean and covariance of a Gaussian moved by attention."""

    start: Gaussian
    weights: Weights
    solve: Solve
    flow: MomentFlow = field(default_factory=MomentFlow)
    seed: Seed = 0


class Steer(Table, frozen=True, kw_only=True, tag_field="kind", tag="steer"):
    """Controls that carry one Gaussian to another, to within `tolerance` in the distance W₂."""

    start: Gaussian
    target: Gaussian
    control: Control = field(default_factory=Control)
    tolerance: Positive = 1e-3
    tokens: SteerTokens = field(default_factory=SteerTokens)
    solve: SteerSolve = field(default_factory=SteerSolve)
    seed: Seed = 0


class TokenSteer(Table, frozen=True, kw_only=True, tag_field="kind", tag="steer_tokens"):
    """One control that carries clouds of tokens to clouds, each to within `tolerance` in the distance of the loss."""

    pairs: Annotated[list[Pair], Meta(min_length=1)]
    control: TokenControl = field(default_factory=TokenControl)
    flow: TokenFlow = field(default_factory=TokenFlow)
    tolerance: Positive = 0.05
    solve: TokenSteps = field(default_factory=TokenSteps)
    seed: Seed = 0


class Closure(Table, frozen=True, kw_only=True, tag_field="kind", tag="closure"):
    """Finitely many tokens against the moments, over the strength of attention."""

    start: Gaussian
    weights: Constant
    sweep: Sweep
    solve: Steps
    seed: Seed = 0


class Blocks(Table, frozen=True, kw_only=True, tag_field="kind", tag="blocks"):
    """Tokens through residual blocks with prescribed weights, block by block, against the moments."""

    start: Gaussian
    blocks: BlockSizes
    cases: list[Case]
    seed: Seed = 0


class Phase(Table, frozen=True, kw_only=True, tag_field="kind", tag="phase"):
    """What becomes of a Gaussian under V = vI, B = bI, over a grid of (v, b)."""

    start: Gaussian
    weights: Constant
    grid: Grid
    solve: Horizon
    seed: Seed = 0


class MeanField(Table, frozen=True, kw_only=True, tag_field="kind", tag="meanfield"):
    """A density on S¹ or S² moved by attention, infinitely many tokens, and clouds of tokens beside it."""

    density: Start
    weights: DensityWeights
    solve: Solve
    flow: DensityFlow = field(default_factory=DensityFlow)
    clouds: Clouds = field(default_factory=Clouds)
    seed: Seed = 0


class Pretrained(Table, frozen=True, kw_only=True, tag_field="kind", tag="pretrained"):
    """Gaussian tokens through a trained encoder: how Gaussian they stay, and what (1.1) says of every block."""

    model: Model
    input: Input = field(default_factory=Input)
    measure: Measurement = field(default_factory=Measurement)
    prescribed: Prescribed | None = None
    seed: Seed = 0


class Transport(Table, frozen=True, kw_only=True, tag_field="kind", tag="transport"):
    """The distances between two clouds on the sphere, that of the metric of attention among them, and its path."""

    start: Tokens
    target: Tokens
    weights: Weights
    distance: Distance = field(default_factory=Distance)
    seed: Seed = 0


class Movement(Table, frozen=True, kw_only=True, tag_field="kind", tag="jko"):
    """Minimising movements (JKO) of the energy with several steps τ, beside the flow that they converge to."""

    tokens: Tokens
    weights: Weights
    scheme: Scheme
    seed: Seed = 0


class Stability(Table, frozen=True, kw_only=True, tag_field="kind", tag="stability"):
    """Neighbouring clouds under the same weights: how fast they part, against the bound e^{Lt}."""

    tokens: Tokens
    weights: Weights
    neighbours: Neighbours
    solve: Solve
    flow: SphereFlow = field(default_factory=SphereFlow)
    seed: Seed = 0


class Perturbation(Table, frozen=True, kw_only=True, tag_field="kind", tag="perturbation"):
    """The same start under nearby weights D + εS and (1 − ε)D: clouds, energies and minimisers as ε → 0."""

    tokens: Tokens
    weights: Weights
    perturbation: Perturbed
    solve: Solve
    flow: SphereFlow = field(default_factory=SphereFlow)
    minimum: Minimum | None = None
    seed: Seed = 0


class Limits(Table, frozen=True, kw_only=True, tag_field="kind", tag="limits"):
    """The same start under weights that settle and weights that do not: does it rest, and for which energy?"""

    tokens: Tokens
    cases: Annotated[list[LimitCase], Meta(min_length=1)]
    solve: Solve
    flow: SphereFlow = field(default_factory=SphereFlow)
    tolerance: Positive = 1e-6
    seed: Seed = 0


Experiment = (
    Particles
    | Moments
    | Steer
    | TokenSteer
    | Closure
    | Blocks
    | Phase
    | MeanField
    | Pretrained
    | Transport
    | Movement
    | Stability
    | Perturbation
    | Limits
)
KINDS: tuple[type[Table], ...] = get_args(Experiment)


def kind_of(table: Table | type[Table]) -> str:
    """The value of `kind` that selects this struct, or this value of it, in a config."""
    return str(table.__struct_config__.tag)
