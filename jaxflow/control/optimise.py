"""The search for controls, a number of iterations at a time: Adam, L-BFGS, minimum-norm Gauss–Newton.

A search keeps the best controls seen and stands still once their distance is within the tolerance, so that it can be
run in chunks, resumed, and vmapped over many targets.
"""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxflow._typing import Count, Flag, Scalar
from jaxflow.control.problem import Controls, Problem, tree_where
from jaxflow.measures import Gaussian

Method = Literal["adam", "lbfgs", "gauss-newton"]
FADING = 4
"""The weight of the effort falls from λ to 0 as (1 − i/iterations)^FADING: at a fixed λ the distance would stop near
λ·|∂effort|, and the last iterations are there to arrive."""

METHODS: tuple[Method, ...] = ("adam", "lbfgs", "gauss-newton")


@final
class Search(eqx.Module):
    """A search under way. `distance` is the W₂ of `best`; `iteration` counts steps really taken."""

    controls: Controls
    memory: Any
    best: Controls
    distance: Scalar
    iteration: Count


def optimiser(method: Method, learning_rate: float, iterations: int) -> optax.GradientTransformation:
    """The optax transformation: Adam with cosine decay to a hundredth, or L-BFGS with zoom line search."""
    if method == "lbfgs":
        return optax.lbfgs(memory_size=20)
    return optax.adam(optax.cosine_decay_schedule(learning_rate, iterations, alpha=0.01))


def begin(problem: Problem, controls: Controls, *, method: Method, learning_rate: float, iterations: int) -> Search:
    """A search that starts from these controls."""
    dtype = problem.start.mean.dtype
    newton = method == "gauss-newton"
    memory = jnp.asarray(1.0, dtype) if newton else optimiser(method, learning_rate, iterations).init(controls)
    return Search(controls, memory, controls, jnp.asarray(jnp.inf, dtype), jnp.asarray(0))


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
    """Up to `steps` iterations, fewer if the tolerance is met or `iterations` are used up.

    Returns: the search, and (objective, W₂) at the beginning of every iteration (repeated once it stands still).
    """

    def step(search: Search) -> tuple[Search, Array]:
        if method == "gauss-newton":
            value, square, controls, memory = _newton(problem, search)
        else:
            left = 1 - search.iteration / iterations
            weight = problem.effort_weight * left.astype(problem.effort_weight.dtype) ** FADING
            transform = optimiser(method, learning_rate, iterations)
            value, square, controls, memory = _descend(problem, search, transform, weight)
        distance = jnp.sqrt(square)
        better = distance < search.distance
        best = tree_where(better, search.controls, search.best)
        search = Search(controls, memory, best, jnp.minimum(distance, search.distance), search.iteration + 1)
        return search, jnp.stack([value, distance])

    def step_or_stand(carry: tuple[Search, Array], _: Any) -> tuple[tuple[Search, Array], Array]:
        search, last = carry
        active = (search.distance > tolerance) & (search.iteration < iterations)
        search, last = jax.lax.cond(active, step, lambda search: (search, last), search)
        return (search, last), last

    last = jnp.full(2, jnp.inf, problem.start.mean.dtype)
    (search, _), history = jax.lax.scan(step_or_stand, (search, last), None, length=steps)
    return search, history


def _descend(
    problem: Problem, search: Search, transform: optax.GradientTransformation, weight: Scalar
) -> tuple[Scalar, Scalar, Controls, Any]:
    """One optax step: objective and W₂² before it, controls and memory after it."""
    (value, square), gradient = jax.value_and_grad(problem.loss, has_aux=True)(search.controls, weight)
    updates, memory = optax.with_extra_args_support(transform).update(
        gradient,
        search.memory,
        search.controls,
        value=value,
        grad=gradient,
        value_fn=lambda controls: problem.loss(controls, weight)[0],
    )
    return value, square, optax.apply_updates(search.controls, updates), memory  # pyright: ignore[reportReturnType]


def _newton(problem: Problem, search: Search) -> tuple[Scalar, Scalar, Controls, Array]:
    """One Levenberg–Marquardt trial step Δ = −Jᵀ(JJᵀ + νI)^{-1} r, taken if it makes |r| smaller.

    As ν → 0 it becomes the smallest change that solves JΔ = −r. The residual r has m = d(d+3)/2 entries and the
    controls many more, so that the m × m side is solved. ν follows the ratio of actual to predicted decrease.
    Source: Nielsen, IMM-REP-1999-05, §2.
    """
    flat, unravel = ravel_pytree(search.controls)
    nu = search.memory

    def miss(flat: Array) -> tuple[Array, tuple[Gaussian, Flag]]:
        final, arrived = problem.arrive(unravel(flat))
        return problem.miss(final), (final, arrived)

    r, pull_back, (final, arrived) = jax.vjp(miss, flat, has_aux=True)
    (J,) = jax.vmap(pull_back)(jnp.eye(r.shape[0], dtype=r.dtype))
    value, square = problem.objective(search.controls, final, arrived, problem.effort_weight)
    gram = J @ J.T
    m = gram.shape[0]
    damping = nu * jnp.trace(gram) / m + m * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    y = jnp.linalg.solve(gram + damping * jnp.eye(m, dtype=gram.dtype), r)
    step = -J.T @ y
    new, _ = miss(flat + step)
    before, after = jnp.sum(r * r), jnp.sum(new * new)
    predicted = before - jnp.sum((r - gram @ y) ** 2)
    ratio = jnp.where(jnp.isfinite(after), (before - after) / predicted, -1.0)
    taken = ratio > 0
    shrink = jnp.maximum(0.1, 1 - (2 * ratio - 1) ** 3)
    nu = jnp.clip(jnp.where(taken, nu * shrink * 0.5, nu * 4), 1e-16, 1e6)
    return value, square, unravel(flat + jnp.where(taken, 1.0, 0.0) * step), nu
