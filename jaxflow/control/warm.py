"""A search that goes on from layers found before: a schedule of the right kind as controls."""

import jax.numpy as jnp
from jaxtyping import Array

from jaxflow.control.curves import Lines, Steps, Waves
from jaxflow.control.limits import out_of_ball
from jaxflow.control.problem import Controls, Problem
from jaxflow.errors import InputError
from jaxflow.weights import AbstractSchedule, Fourier, Piecewise, Sampled

KINDS = {Steps: Piecewise, Lines: Sampled, Waves: Fourier}

INSIDE = 1e-3
"""A horizon on an end of its interval is moved in by this part of the interval."""


def with_controls(problem: Problem, weights: AbstractSchedule) -> Controls:
    """The free controls of a given schedule, as a start for a search.

    Raises:
        InputError: the schedule is of another kind than the problem's curve, or has other sizes; a network, or bounded
            waves, whose coefficients a schedule does not show.
    """
    expected = KINDS.get(type(problem.shape))
    bounded_waves = isinstance(problem.shape, Waves) and problem.bounds
    if expected is None or bounded_waves:
        raise InputError(
            "cannot be read back from layers", where="warm_start", got=f"controls = {type(problem.shape).__name__}"
        )
    if not isinstance(weights, Piecewise | Sampled | Fourier) or not isinstance(weights, expected):
        raise InputError(
            "is another kind of layers in time", where="warm_start", got=type(weights).__name__,
            expected=expected.__name__,
        )  # fmt: skip
    layer, radii, zero = weights.layers, dict(problem.bounds), problem.zero_controls()
    found = {}
    for name, first in zero.items():
        if name == "time":
            found[name] = _raw_horizon(problem, weights)
            continue
        x: Array | None = getattr(layer, name)
        if x is None:
            found[name] = first
            continue
        if x.size != first.size:
            raise InputError("has another size", where=f"warm_start.{name}", got=x.shape, expected=f"{first.shape}")
        x = jnp.reshape(x, first.shape)
        found[name] = out_of_ball(x, radii[name], lead=1) if name in radii else x
    return found


def _raw_horizon(problem: Problem, weights: AbstractSchedule) -> Array:
    """The parameter of the horizon at which these layers end."""
    assert problem.horizon is not None
    low, high = problem.horizon
    T = weights.t1 if isinstance(weights, Fourier) else weights.edges[-1]
    share = jnp.clip((T - low) / (high - low), INSIDE, 1 - INSIDE)
    return jnp.log(share / (1 - share)).astype(problem.start.mean.dtype)
