"""Can this density start and move? Centres, waves and resolutions; laws; clouds beside it."""

from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.flow import WITHOUT, check_direction
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.checks.solve import check_solve
from jaxflow.experiments.checks.tokens import check_tokens
from jaxflow.experiments.checks.weights import check_single_run, check_weights
from jaxflow.experiments.schema import MeanField
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.meanfield import Infinite, Mixture, Ripples, Smoothed, Start, Wave
from jaxflow.experiments.schema.weights import Constant, attention_of


def check_meanfield(experiment: MeanField, *, folder: Path, precision: str) -> None:
    """Raise InputError at the first pair of keys that contradict each other."""
    flow, weights = experiment.flow, experiment.weights
    d = _check_start(experiment.density, folder=folder, precision=precision)
    if flow.grid is not None and flow.grid < experiment.density.degree:
        raise InputError(
            "is coarser than the density",
            where="flow.grid",
            got=flow.grid,
            expected=f"at least density.degree = {experiment.density.degree}",
        )
    if isinstance(weights, Infinite):
        if flow.law not in (None, "unnormalized"):
            raise InputError(
                "has no closed form for infinitely many heads",
                where="flow.law",
                got=flow.law,
                expected="unnormalized",
                fix='take weights of kind "ou" with many heads',
            )
        # Their average over time and paths is smooth: as constant weights to a solver.
        check_solve(experiment.solve, Constant(), MomentFlow())
    else:
        check_weights(weights, d, "the density")
        check_single_run(weights)
        check_direction(MomentFlow(direction=flow.direction), weights)
        attention = attention_of(weights)
        if flow.law == "steepest" and attention != "tied":
            raise InputError(
                f"the steepest law descends the energy of tied heads, and {WITHOUT[attention]}",
                where="flow.law",
                got=flow.law,
                expected="softmax, unnormalized, or tied heads `D`",
            )
        if attention == "none":
            refuse_given(flow, ("law",), "flow", WITHOUT[attention])
        check_solve(experiment.solve, weights, MomentFlow())
    _check_clouds(experiment)


def _check_start(density: Start, *, folder: Path, precision: str) -> int:
    if isinstance(density, Smoothed):
        try:
            d = check_tokens(density.tokens, Flow(), folder=folder, precision=precision)
        except InputError as error:
            raise error.at("density") from None
        if d not in (2, 3):
            raise InputError("densities live on S¹ and S²", where="density.tokens", got=f"d = {d}", expected="2 or 3")
        return d
    if isinstance(density, Mixture):
        for index, centre in enumerate(density.centres):
            where = f"density.centres[{index}]"
            shapes.vector(centre, where, density.dim, "density.dim")
            if not any(centre):
                raise InputError("zero has no direction", where=where, got=centre, expected="a direction")
        shares = density.shares
        if shares is not None and (len(shares) != len(density.centres) or sum(shares) > 1 + 1e-12):
            raise InputError(
                "are no shares of a mass of 1",
                where="density.shares",
                got=shares,
                expected=f"{len(density.centres)} numbers > 0, one for each centre, that sum to at most 1",
            )
    modes = density.mode if isinstance(density, Wave) else density.modes if isinstance(density, Ripples) else 0
    if modes > density.degree:
        raise InputError(
            "is above the degree of the density",
            where=f"density.{'mode' if isinstance(density, Wave) else 'modes'}",
            got=modes,
            expected=f"at most density.degree = {density.degree}",
        )
    return density.dim


def _check_clouds(experiment: MeanField) -> None:
    n = experiment.clouds.n
    if n != sorted(set(n)):
        raise InputError("must increase", where="clouds.n", got=n, expected="increasing whole numbers")
    if not n:
        return
    if experiment.flow.kappa is not None:
        raise InputError(
            "do not run beside a density with noise: their noise would be another one in every step",
            where="clouds.n",
            got=n,
            expected="no clouds",
            fix="remove clouds, or flow.kappa",
        )
    if experiment.clouds.degree > experiment.density.degree:
        raise InputError(
            "is above the degree of the density",
            where="clouds.degree",
            got=experiment.clouds.degree,
            expected=f"at most density.degree = {experiment.density.degree}",
        )
