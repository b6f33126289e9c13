"""What steering returns: layers in time, and how well they do."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxflow._typing import Count, Scalar
from jaxflow.control.problem import Controls, Problem
from jaxflow.control.stop import Stop
from jaxflow.measures import Gaussian
from jaxflow.solve import Solution, Status
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import AbstractSchedule


@final
class Plan(eqx.Module):
    """Layers that steer, and how well.

    Attributes:
        weights: the layers on [0, horizon]; they move Gaussians (`MomentFlow`) and tokens (`AttentionFlow`) alike.
            A `Piecewise` for constant controls, a `Sampled` for straight lines, a `Fourier`, or a `Function`.
        error: W₂ between where they lead and the target, re-integrated more finely than the search did.
        residual: largest absolute error in mean and covariance, likewise.
        effort: ∫ |A|² + |B|² + |V|² + |b|² dt.
        history: (objective, W₂) for every iteration, (iterations, 2).
        iterations: steps taken.
        converged: whether error ≤ tolerance.
        horizon: t1, or the T that was found.
        stop: a `Stop`, why the search ended; the controls are the best it saw.
    """

    weights: AbstractSchedule
    error: Scalar
    residual: Scalar
    effort: Scalar
    history: Float[Array, "i 2"]
    iterations: Count
    converged: Bool[Array, ""]
    horizon: Scalar
    stop: Any


def make_plan(
    problem: Problem,
    controls: Controls,
    history: Float[Array, "i 2"],
    iterations: Count,
    *,
    tolerance: float,
    verified: Solution | None = None,
    stop: Any = None,
) -> Plan:
    """The plan of these controls, with its error measured on a finer solve (`verified`, if there is one already).

    `stop` says why the search ended; without one the measured error does.

    Raises:
        InputError: a free horizon under jit, vmap or grad.
    """
    weights = problem.layers_in_time(controls)
    verified = problem.verify(controls) if verified is None else verified
    error, residual = misses(verified, problem.target)
    return Plan(
        weights=weights,
        error=error,
        residual=residual,
        effort=problem.effort(controls),
        history=history,
        iterations=iterations,
        converged=error <= tolerance,
        horizon=problem.duration(controls),
        stop=Stop.where(error <= tolerance, Stop.tolerance, Stop.iterations) if stop is None else stop,
    )


def misses(verified: Solution, target: Gaussian) -> tuple[Scalar, Scalar]:
    """W₂ to the target and the largest error in mean and covariance; inf where the flow did not get to its end."""
    final, arrived = verified.final, verified.status == Status.done
    gaps = (final.mean - target.mean, final.covariance - target.covariance)
    residual = jnp.maximum(*(jnp.max(jnp.abs(gap)) for gap in gaps))
    return (
        jnp.where(arrived, wasserstein_gaussian(final, target), jnp.inf),
        jnp.where(arrived, residual, jnp.inf),
    )
