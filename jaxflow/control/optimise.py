"""The search for controls, a number of iterations at a time: Adam, L-BFGS, minimum-norm Gauss–Newton.

A search keeps the best controls seen and stands still once their distance is within the tolerance, so that it can be
run in chunks, resumed, and vmapped over many targets.
"""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxflow._typing import Count, Scalar
from jaxflow.control.newton import first_memory, newton_step
from jaxflow.control.problem import Controls, Problem, tree_where
from jaxflow.control.stop import Stop

Method = Literal["adam", "lbfgs", "gauss-newton"]
FADING = 4
"""The weights of effort, smoothness and time fall to 0 as (1 − i/iterations)^FADING, in step: at a fixed λ the distance
would stop near λ·|∂effort|, and the last iterations are there to arrive."""

METHODS: tuple[Method, ...] = ("adam", "lbfgs", "gauss-newton")

PATIENCE: dict[Method, int | None] = {"adam": None, "lbfgs": None, "gauss-newton": 30}
"""After so many iterations without a better W₂ the search gives up. The descents keep going to the end of their
schedules: while the weight of the effort fades, a distance that stands still is no sign of being stuck."""

BETTER = 1e-3
"""The relative decrease of W₂ that counts as better."""

FULL = 0.99
"""A control counts as stopped by its bound from this part of it on."""


@final
class Search(eqx.Module):
    """A search under way. `distance` is the W₂ of `best`; `iteration` counts steps really taken, `idle` those since W₂
    was last improved."""

    controls: Controls
    memory: Any
    best: Controls
    distance: Scalar
    iteration: Count
    idle: Count


def optimiser(method: Method, learning_rate: float, iterations: int) -> optax.GradientTransformation:
    """The optax transformation: Adam with cosine decay to a hundredth, or L-BFGS with zoom line search."""
    if method == "lbfgs":
        return optax.lbfgs(memory_size=20)
    return optax.adam(optax.cosine_decay_schedule(learning_rate, iterations, alpha=0.01))


def begin(problem: Problem, controls: Controls, *, method: Method, learning_rate: float, iterations: int) -> Search:
    """A search that starts from these controls."""
    dtype = problem.start.mean.dtype
    newton = method == "gauss-newton"
    memory = first_memory(controls) if newton else optimiser(method, learning_rate, iterations).init(controls)
    return Search(controls, memory, controls, jnp.asarray(jnp.inf, dtype), jnp.asarray(0), jnp.asarray(0))


def why(problem: Problem, search: Search, *, method: Method, tolerance: float) -> Stop:
    """Why this search ended, or would end now."""
    patience = PATIENCE[method]
    stop = Stop.iterations if patience is None else Stop.where(search.idle >= patience, Stop.stalled, Stop.iterations)
    if problem.bounds:
        stop = Stop.where(problem.saturation(search.best) >= FULL, Stop.bounds, stop)
    stop = Stop.where(jnp.isinf(search.distance), Stop.blow_up, stop)
    return Stop.where(search.distance <= tolerance, Stop.tolerance, stop)


def advance(
    problem: Problem,
    search: Search,
    *,
    method: Method,
    steps: int,
    tolerance: float,
    learning_rate: float,
    iterations: int,
) -> tuple[Search, Float[Array, "steps 2"]]:
    """Up to `steps` iterations, fewer if the tolerance is met, `iterations` are used up, or nothing helps any more.

    Returns: the search, and (objective, W₂) at the beginning of every iteration (repeated once it stands still).
    """

    patience = PATIENCE[method]

    def step(search: Search) -> tuple[Search, Array]:
        if method == "gauss-newton":
            controls, value, square, memory = _newton(problem, search)
            reached = controls
        else:
            left = 1 - search.iteration / iterations
            fade = left.astype(problem.effort_weight.dtype) ** FADING
            transform = optimiser(method, learning_rate, iterations)
            value, square, controls, memory = _descend(problem, search, transform, problem.effort_weight * fade, fade)
            reached = search.controls
        distance = jnp.sqrt(square)
        best = tree_where(distance < search.distance, reached, search.best)
        idle = jnp.where(distance < (1 - BETTER) * search.distance, 0, search.idle + 1)
        search = Search(controls, memory, best, jnp.minimum(distance, search.distance), search.iteration + 1, idle)
        return search, jnp.stack([value, distance])

    def going(carry: tuple[Search, Array, Array]) -> Array:
        search, _, i = carry
        on = (search.distance > tolerance) & (search.iteration < iterations) & (i < steps)
        return on if patience is None else on & (search.idle < patience)

    def go(carry: tuple[Search, Array, Array]) -> tuple[Search, Array, Array]:
        search, history, i = carry
        search, now = step(search)
        # Filled to the end, so that a search that stands still repeats its last row.
        return search, jnp.where((jnp.arange(steps) >= i)[:, None], now[None], history), i + 1

    history = jnp.full((steps, 2), jnp.inf, problem.start.mean.dtype)
    search, history, _ = jax.lax.while_loop(going, go, (search, history, jnp.asarray(0)))
    return search, history


def _newton(problem: Problem, search: Search) -> tuple[Controls, Scalar, Scalar, Any]:
    """One Gauss–Newton iteration: the controls it reaches, objective and W₂² there, and its memory."""
    controls, end, memory = newton_step(problem, search.controls, search.memory)
    value, _ = problem.objective(controls, end, jnp.isfinite(memory.square), problem.effort_weight)
    return controls, value, memory.square, memory


def _descend(
    problem: Problem, search: Search, transform: optax.GradientTransformation, weight: Scalar, fade: Scalar
) -> tuple[Scalar, Scalar, Controls, Any]:
    """One optax step: objective and W₂² before it, controls and memory after it."""
    (value, square), gradient = jax.value_and_grad(problem.loss, has_aux=True)(search.controls, weight, fade=fade)
    updates, memory = optax.with_extra_args_support(transform).update(
        gradient,
        search.memory,
        search.controls,
        value=value,
        grad=gradient,
        value_fn=lambda controls: problem.loss(controls, weight, fade=fade)[0],
    )
    return value, square, optax.apply_updates(search.controls, updates), memory  # pyright: ignore[reportReturnType]
