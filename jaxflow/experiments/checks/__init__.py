"""Do the parts of a config fit together? Everything that one key alone cannot tell."""

from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.control import check_control, check_steer_tokens
from jaxflow.experiments.checks.flow import check_direction, check_flow
from jaxflow.experiments.checks.gaussian import check_gaussian
from jaxflow.experiments.checks.meanfield import check_meanfield
from jaxflow.experiments.checks.pretrained import check_pretrained
from jaxflow.experiments.checks.regimes import check_cases, check_closure, check_phase
from jaxflow.experiments.checks.solve import check_solve
from jaxflow.experiments.checks.steer_tokens import check_token_steering
from jaxflow.experiments.checks.theorems import (
    check_jko,
    check_limits,
    check_perturbation,
    check_stability,
    check_transport,
)
from jaxflow.experiments.checks.tokens import check_tokens
from jaxflow.experiments.checks.weights import check_single_run, check_weights
from jaxflow.experiments.schema import (
    Blocks,
    Closure,
    Experiment,
    Limits,
    MeanField,
    Moments,
    Movement,
    Particles,
    Perturbation,
    Phase,
    Pretrained,
    Stability,
    Steer,
    TokenSteer,
    Transport,
)


def check(experiment: Experiment, *, folder: Path, precision: str) -> None:
    """Raise InputError at the first pair of keys that contradict each other.

    Args:
        experiment: fits the schema.
        folder: where its data files lie.
        precision: the precision of the run.
    """
    match experiment:
        case Particles():
            d = check_tokens(experiment.tokens, experiment.flow, folder=folder, precision=precision)
            check_weights(experiment.weights, d, "the tokens")
            check_flow(experiment.flow, experiment.weights)
            check_solve(experiment.solve, experiment.weights, experiment.flow)
        case Moments():
            d = check_gaussian(experiment.start, "start", folder=folder, precision=precision)
            check_weights(experiment.weights, d, "the start")
            check_single_run(experiment.weights)
            check_direction(experiment.flow, experiment.weights)
            check_solve(experiment.solve, experiment.weights, experiment.flow)
        case Steer():
            _check_ends(experiment, folder=folder, precision=precision)
            check_control(experiment.control)
            check_steer_tokens(experiment.tokens, experiment.control.earliest)
        case TokenSteer():
            check_token_steering(experiment, folder=folder, precision=precision)
        case Closure():
            d = check_gaussian(experiment.start, "start", folder=folder, precision=precision)
            check_closure(experiment.weights, experiment.sweep, experiment.solve, d)
        case Blocks():
            d = check_gaussian(experiment.start, "start", folder=folder, precision=precision)
            check_cases(experiment.cases, experiment.blocks.n, d)
            _check_double(precision)
        case Phase():
            d = check_gaussian(experiment.start, "start", folder=folder, precision=precision)
            check_phase(experiment.weights, experiment.grid, d)
            _check_double(precision)
        case MeanField():
            check_meanfield(experiment, folder=folder, precision=precision)
        case Pretrained():
            check_pretrained(experiment, folder=folder, precision=precision)
        case Transport():
            check_transport(experiment, folder=folder, precision=precision)
        case Movement():
            check_jko(experiment, folder=folder, precision=precision)
        case Stability():
            check_stability(experiment, folder=folder, precision=precision)
        case Perturbation():
            check_perturbation(experiment, folder=folder, precision=precision)
        case Limits():
            check_limits(experiment, folder=folder, precision=precision)


def _check_double(precision: str) -> None:
    if precision != "float64":
        raise InputError(
            "blow-up times of adaptive steps need more digits",
            where="--precision",
            got=precision,
            expected="float64",
        )


def _check_ends(experiment: Steer, *, folder: Path, precision: str) -> None:
    start = check_gaussian(experiment.start, "start", folder=folder, precision=precision)
    target = check_gaussian(experiment.target, "target", folder=folder, precision=precision)
    shapes.same_dimension(start, target)
