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

from jaxflow._typing import Count, Scalar
from jaxflow.control.problem import Controls, Problem, tree_where

Method = Literal["adam", "lbfgs", "gauss-newton"]
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
    memory = None if method == "gauss-newton" else optimiser(method, learning_rate, iterations).init(controls)
    dtype = problem.start.mean.dtype
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
            value, square, controls, memory = _newton(problem, search.controls)
        else:
            value, square, controls, memory = _descend(problem, search, optimiser(method, learning_rate, iterations))
        distance = jnp.sqrt(square)
        better = distance < search.distance
        best = tree_where(better, search.controls, search.best)
        search = Search(
            controls, memory, best, jnp.minimum(distance, search.distance), search.iteration + 1
        )
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
    problem: Problem, search: Search, transform: optax.GradientTransformation
) -> tuple[Scalar, Scalar, Controls, Any]:
    """One optax step: objective and W₂² before it, controls and memory after it."""
    (value, square), gradient = jax.value_and_grad(problem.loss, has_aux=True)(search.controls)
    updates, memory = optax.with_extra_args_support(transform).update(
        gradient,
        search.memory,
        search.controls,
        value=value,
        grad=gradient,
        value_fn=lambda controls: problem.loss(controls)[0],
    )
    return value, square, optax.apply_updates(search.controls, updates), memory  # pyright: ignore[reportReturnType]


def _newton(problem: Problem, controls: Controls) -> tuple[Scalar, Scalar, Controls, None]:
    """One minimum-norm Gauss–Newton step: the smallest change Δ with J Δ = −r, halved until |r| falls.

    r has m = d(d+3)/2 entries and the controls many more, so that J Jᵀ (m × m) is solved.
    """
    value, square = problem.loss(controls)
    flat, unravel = ravel_pytree(controls)

    def miss(flat: Array) -> Array:
        return problem.miss(unravel(flat))

    r, J = miss(flat), jax.jacrev(miss)(flat)
    gram = J @ J.T
    m = gram.shape[0]
    ridge = jnp.finfo(gram.dtype).eps * m * jnp.trace(gram)
    full = -J.T @ jnp.linalg.solve(gram + ridge * jnp.eye(m, dtype=gram.dtype), r)
    sizes = 0.5 ** jnp.arange(10, dtype=flat.dtype)

    def after(size: Array) -> Array:
        size_of = jnp.linalg.norm(miss(flat + size * full))
        return jnp.where(jnp.isfinite(size_of), size_of, jnp.inf)

    def shorter(i: Array) -> Array:
        return i + 1

    def too_long(i: Array) -> Array:
        return (i < len(sizes) - 1) & (after(sizes[i]) > (1 - sizes[i] / 4) * jnp.linalg.norm(r))

    i = jax.lax.while_loop(too_long, shorter, jnp.asarray(0))
    return value, square, unravel(flat + sizes[i] * full), None
