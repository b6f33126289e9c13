"""The search for one control that moves all clouds, a number of iterations at a time: Adam or L-BFGS.

A search keeps the best controls seen, by the worst of its pairs, and stands still once that is within the tolerance or
nothing moves any more, so that it can be run in chunks, resumed, and vmapped.
"""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxflow._typing import Count, Flag, Scalar
from jaxflow.control.optimise import FADING, optimiser
from jaxflow.control.problem import Controls, tree_where
from jaxflow.control.token_problem import TokenProblem

TokenMethod = Literal["adam", "lbfgs"]
TOKEN_METHODS: tuple[TokenMethod, ...] = ("adam", "lbfgs")


@final
class TokenSearch(eqx.Module):
    """A search under way. `distances` are those of `best`; `iteration` counts steps really taken; `stalled` says that
    the last step changed nothing."""

    controls: Controls
    memory: Any
    best: Controls
    distances: Float[Array, " p"]
    iteration: Count
    stalled: Flag

    @property
    def distance(self) -> Scalar:
        """That of the worst pair of `best`."""
        return jnp.max(self.distances)


def begin_tokens(
    problem: TokenProblem, controls: Controls, *, method: TokenMethod, learning_rate: float, iterations: int
) -> TokenSearch:
    """A search that starts from these controls."""
    memory = optimiser(method, learning_rate, iterations).init(controls)
    infinite = jnp.full(len(problem.starts), jnp.inf, problem.dtype)
    return TokenSearch(controls, memory, controls, infinite, jnp.asarray(0), jnp.asarray(False))


def advance_tokens(
    problem: TokenProblem,
    search: TokenSearch,
    *,
    method: TokenMethod,
    steps: int,
    tolerance: float,
    learning_rate: float,
    iterations: int,
) -> tuple[TokenSearch, Float[Array, "steps 2"]]:
    """Up to `steps` iterations, fewer if the tolerance is met, `iterations` are used up, or nothing moves.

    Returns: the search, and (objective, distance of the worst pair) at the beginning of every iteration (repeated once
    it stands still).
    """
    transform = optax.with_extra_args_support(optimiser(method, learning_rate, iterations))

    def step(search: TokenSearch) -> tuple[TokenSearch, Array]:
        left = 1 - search.iteration / iterations
        weight = problem.effort_weight * left.astype(problem.dtype) ** FADING
        value, distances, controls, memory = _descend(problem, search, transform, weight)
        better = jnp.max(distances) < search.distance
        stalled = jnp.all(jnp.stack([jnp.all(controls[name] == x) for name, x in search.controls.items()]))
        best = tree_where(better, search.controls, search.best)
        distances_of_best = jnp.where(better, distances, search.distances)
        new = TokenSearch(controls, memory, best, distances_of_best, search.iteration + 1, stalled)
        return new, jnp.stack([value, jnp.max(distances)])

    def going(carry: tuple[TokenSearch, Array, Array]) -> Array:
        search, _, i = carry
        return (search.distance > tolerance) & ~search.stalled & (search.iteration < iterations) & (i < steps)

    def go(carry: tuple[TokenSearch, Array, Array]) -> tuple[TokenSearch, Array, Array]:
        search, history, i = carry
        search, now = step(search)
        # Filled to the end, so that a search that stands still repeats its last row.
        return search, jnp.where((jnp.arange(steps) >= i)[:, None], now[None], history), i + 1

    history = jnp.full((steps, 2), jnp.inf, problem.dtype)
    search, history, _ = jax.lax.while_loop(going, go, (search, history, jnp.asarray(0)))
    return search, history


def _descend(
    problem: TokenProblem, search: TokenSearch, transform: optax.GradientTransformationExtraArgs, weight: Scalar
) -> tuple[Scalar, Float[Array, " p"], Controls, Any]:
    """One optax step: objective and distances before it, controls and memory after it.

    Where tokens did not arrive, or the gradient is not finite, the search goes halfway back to the best controls (to
    zero if there are none) and forgets its memory: one NaN in Adam's averages would stay for ever.
    """
    (value, distances), gradient = jax.value_and_grad(problem.objective, has_aux=True)(search.controls, weight)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((gradient, distances))]))
    gradient = tree_where(finite, gradient, jax.tree.map(jnp.zeros_like, gradient))
    updates, memory = transform.update(
        gradient,
        search.memory,
        search.controls,
        value=value,
        grad=gradient,
        value_fn=lambda controls: problem.objective(controls, weight)[0],
    )
    controls: Any = optax.apply_updates(search.controls, updates)
    known = jnp.isfinite(search.distance)
    halfway = jax.tree.map(lambda x, best: (x + jnp.where(known, best, 0.0)) / 2, search.controls, search.best)
    memory = tree_where(finite, memory, transform.init(search.controls))
    return value, distances, tree_where(finite, controls, halfway), memory
