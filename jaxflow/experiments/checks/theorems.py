"""Do the theorems on curves of clouds apply? One dimension, tied heads, tokens on the sphere, increasing lists."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.checks.regimes import check_names
from jaxflow.experiments.checks.solve import check_solve
from jaxflow.experiments.checks.steer_tokens import check_clouds
from jaxflow.experiments.checks.tokens import check_tokens
from jaxflow.experiments.checks.weights import check_single_run, check_weights
from jaxflow.experiments.schema import Limits, Movement, Perturbation, Stability, Transport
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.solve import Solve
from jaxflow.experiments.schema.theorems import Distance, Perturbed
from jaxflow.experiments.schema.tokens import Explicit, Tokens
from jaxflow.experiments.schema.weights import OrnsteinUhlenbeck, Piecewise, Segment, Weights, attention_of

ROUNDING = 1e-9


def check_transport(experiment: Transport, *, folder: Path, precision: str) -> None:
    """Check a config of kind transport."""
    start, target = (
        check_clouds(table, name, "sphere", folder=folder, precision=precision)[name]
        for name, table in (("start", experiment.start), ("target", experiment.target))
    )
    shapes.same_dimension(start, target)
    _check_mass(experiment.start, experiment.target)
    check_tied(experiment.weights, start, "the start")
    _check_distance(experiment.distance, experiment.weights)


def check_jko(experiment: Movement, *, folder: Path, precision: str) -> None:
    """Check a config of kind jko."""
    scheme = experiment.scheme
    d = _on_the_sphere(experiment.tokens, folder=folder, precision=precision)
    check_tied(experiment.weights, d, "the tokens")
    _check_increasing(scheme.tau, "scheme.tau")
    if scheme.tau[-1] > scheme.t1:
        raise InputError(
            "the step is longer than the run",
            where=f"scheme.tau[{len(scheme.tau) - 1}]",
            got=scheme.tau[-1],
            expected=f"at most scheme.t1 = {scheme.t1:g}",
        )
    if isinstance(experiment.weights, OrnsteinUhlenbeck) and experiment.weights.noise_var > 0:
        raise InputError(
            "the heads are a diffusion path, and no order of convergence can be read off",
            where="weights.noise_var",
            got=experiment.weights.noise_var,
            expected="0",
        )
    # Piecewise weights must last.
    check_solve(Solve(t1=scheme.t1), experiment.weights, MomentFlow())


def check_stability(experiment: Stability, *, folder: Path, precision: str) -> None:
    """Check a config of kind stability."""
    d = _on_the_sphere(experiment.tokens, folder=folder, precision=precision)
    check_tied(experiment.weights, d, "the tokens")
    _check_increasing(experiment.neighbours.size, "neighbours.size")
    check_solve(experiment.solve, experiment.weights, MomentFlow())


def check_perturbation(experiment: Perturbation, *, folder: Path, precision: str) -> None:
    """Check a config of kind perturbation."""
    d = _on_the_sphere(experiment.tokens, folder=folder, precision=precision)
    check_tied(experiment.weights, d, "the tokens")
    _check_perturbed(experiment.perturbation, experiment.weights, d)
    check_solve(experiment.solve, experiment.weights, MomentFlow())


def check_limits(experiment: Limits, *, folder: Path, precision: str) -> None:
    """Check a config of kind limits."""
    d = _on_the_sphere(experiment.tokens, folder=folder, precision=precision)
    check_names([case.name for case in experiment.cases])
    for index, case in enumerate(experiment.cases):
        with placed("weights", f"cases[{index}].weights"):
            check_tied(case.weights, d, "the tokens")
            check_solve(experiment.solve, case.weights, MomentFlow())


def check_tied(weights: Weights, d: int, source: str) -> None:
    """Check `[weights]` of a theorem: one run, and tied heads alone, which have an energy and a mobility."""
    check_weights(weights, d, source)
    check_single_run(weights)
    attention = attention_of(weights)
    if attention != "tied":
        raise InputError(
            "only tied heads have the energy and the metric that the theorem is about",
            where="weights",
            got="free heads B, V" if attention == "free" else "no heads",
            expected="symmetric `D`, or `heads`, how many to draw at random",
        )
    layers = weights.segments if isinstance(weights, Piecewise) else [weights]
    for index, layer in enumerate(layers):
        where = f"weights.segments[{index}]" if isinstance(weights, Piecewise) else "weights"
        refuse_given(layer, ("A", "b"), where, "the theorem knows no feed-forward part")


@contextmanager
def placed(name: str, where: str) -> Iterator[None]:
    """Errors of a table that believes to be called `name` say where it really is."""
    try:
        yield
    except InputError as error:
        place = error.where.replace(name, where, 1)
        raise InputError(error.what, where=place, got=error.got, expected=error.expected, fix=error.fix) from None


def _on_the_sphere(tokens: Tokens, *, folder: Path, precision: str) -> int:
    return check_tokens(tokens, Flow(), folder=folder, precision=precision)


def _check_mass(start: Tokens, target: Tokens) -> None:
    weights = [table.weights if isinstance(table, Explicit) else None for table in (start, target)]
    first, second = (1.0 if given is None else sum(given) for given in weights)
    if abs(first - second) > ROUNDING * first:
        raise InputError(
            "the clouds differ in total weight, and mass is moved, not made",
            where="target.weights" if weights[1] is not None else "start.weights",
            got=f"{second:g} in the target, {first:g} in the start",
            expected="equal sums",
            fix="divide the weights of each cloud by their sum; equal weights sum to 1",
        )


def _check_distance(distance: Distance, weights: Weights) -> None:
    if distance.steps % 2:
        raise InputError(
            "must be even: half of them is the coarser path", where="distance.steps", got=distance.steps, fix="take 32"
        )
    if distance.split & (distance.split - 1):
        raise InputError("must be a power of two", where="distance.split", got=distance.split, expected="1, 2, 4, 8, …")
    if isinstance(weights, Piecewise):
        end = sum(segment.duration for segment in weights.segments)
        if distance.time > end * (1 + ROUNDING):
            raise InputError(
                "the segments end before that", where="distance.time", got=distance.time, expected=f"at most {end:g}"
            )


def _check_perturbed(perturbed: Perturbed, weights: Weights, d: int) -> None:
    _check_increasing(perturbed.eps, "perturbation.eps")
    if perturbed.eps[-1] >= 1:
        raise InputError(
            "decay by so much leaves nothing of the heads, or turns their sign",
            where=f"perturbation.eps[{len(perturbed.eps) - 1}]",
            got=perturbed.eps[-1],
            expected="below 1",
        )
    S = perturbed.S
    if S is None:
        return
    first = weights.segments[0] if isinstance(weights, Piecewise) else weights
    drawn = None if isinstance(first, Segment) else first.heads
    heads = drawn if isinstance(drawn, int) else len(first.D or [])
    if len(S) not in (1, heads):
        raise InputError(
            "not the same number of heads",
            where="perturbation.S",
            got=len(S),
            expected=f"{heads}, as in the weights, or one matrix for all",
        )
    names = shapes.head_names("perturbation.S", len(S))
    for array, name in zip(shapes.heads(S, "perturbation.S", d, "the tokens"), names):
        shapes.symmetric(array, name, "tied heads stay symmetric only under a symmetric S")
        if not array.any():
            raise InputError("is no perturbation", where=name, got="zeros", fix="leave S out to have it drawn")


def _check_increasing(values: list[float], where: str) -> None:
    if values != sorted(set(values)):
        raise InputError("must increase", where=where, got=values, expected="increasing numbers")
