"""The path of least action between matched particles: descent on ever more particles, then on twice the time steps.

A particle that ought to split sits on a saddle point of the action, and so does one that ought to leave a great circle
of symmetry; every level therefore starts with a random push and is minimised by a method that follows negative
curvature. Levels share one compiled program: particles that move as one are all copies of the first of them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxflow._typing import Count, PRNGKey, Scalar
from jaxflow.geometry import Sphere
from jaxflow.transport.action import great_circles, path_action, smooth_moves
from jaxflow.transport.minimise import Ended, Found, minimise
from jaxflow.weights import Layer

FIRST_PUSH = 0.2
"""Size of the random start around a symmetric path, in lengths of the path: large enough to leave a saddle point in few
steps, small enough to stay on its slopes."""


class Problem(eqx.Module):
    """Particles from x to y, of masses e^{log_w}, in multiples of the length of their geodesics."""

    layer: Layer
    x: Float[Array, "n d"]
    y: Float[Array, "n d"]
    log_w: Float[Array, " n"]
    length: Scalar
    tolerance: Scalar
    max_iterations: Count

    def action(self, between: Float[Array, "k n d"]) -> Scalar:
        return path_action(self.layer, jnp.concatenate([self.x[None], between, self.y[None]]), self.log_w)

    def move(self, between: Float[Array, "k n d"], z: Float[Array, "k n d"], each: Scalar) -> Float[Array, "k n d"]:
        """The path displaced by z, so that Σ_i w_i ∫|x_i'|² changes by |z|² squared lengths; `each` is how many
        particles move as one."""
        S = jnp.asarray(smooth_moves(between.shape[0] + 1), z.dtype)
        scale = self.length / jnp.sqrt(each * jnp.exp(self.log_w))
        u = scale[None, :, None] * jnp.einsum("km,mnd->knd", S, z)
        return Sphere().retract(between + Sphere().project(between, u))


class Search(eqx.Module):
    """What a search over all levels found."""

    path: Float[Array, "t n d"]
    actions: Float[Array, " levels"]
    optimality: Scalar
    iterations: Count
    status: Any
    antipodal: bool


def search_path(problem: Problem, steps: int, split: int, key: PRNGKey) -> Search:
    """One particle per pair, then 2, 4, …; then twice the steps."""
    # With a number of its own, so that no test or user draws the same numbers from the seed alone.
    rng = np.random.default_rng([*np.asarray(jax.random.key_data(key)), 2605])
    x, y, w = (np.asarray(part) for part in (problem.x, problem.y, jnp.exp(problem.log_w)))
    n, d = x.shape
    dtype = x.dtype
    # Particles of one pair must leave together as long as they are one.
    side = np.repeat(rng.normal(size=(n // split, d)), split, axis=0)
    straight, antipodal = great_circles(x, y, side, steps=steps // 2)
    straight = straight.astype(dtype)
    starts = [straight[1:-1]]
    if antipodal:
        starts.append(great_circles(x, y, -side, steps=steps // 2)[0].astype(dtype)[1:-1])
    reference = _action(problem.layer, straight, problem.log_w)
    if float(problem.length) == 0:
        still = jnp.asarray(np.repeat(x[None], steps + 1, axis=0))
        levels = jnp.zeros(split.bit_length() + 1, dtype)
        return Search(still, levels, jnp.zeros_like(reference), jnp.asarray(0), Ended.optimal, False)
    best, least = straight[1:-1], float(reference)
    actions, iterations = [], 0

    def relax(begin: np.ndarray, push: np.ndarray, slots: np.ndarray, together: int) -> Found:
        parts = jnp.asarray(begin), jnp.asarray(push), jnp.asarray(slots), jnp.asarray(together, dtype)
        return _relax(problem, *parts, reference)

    for level in range(split.bit_length()):
        together = split >> level
        slots = np.arange(n) - np.arange(n) % together
        push = np.zeros_like(best)
        slowest = push[:3]
        slowest[:] = FIRST_PUSH * np.sqrt(w)[None, :, None] * rng.normal(size=slowest.shape)
        for begin in [best] if level else starts:
            found = relax(begin, push, slots, together)
            iterations += int(found.iterations)
            if float(found.value) < least:
                best, least = np.asarray(found.x), float(found.value)
        actions.append(least)
    finer = _halved(np.concatenate([x[None], best, y[None]]))[1:-1]
    found = relax(finer, np.zeros_like(finer), np.arange(n), 1)
    return Search(
        path=jnp.concatenate([problem.x[None], found.x, problem.y[None]]),
        actions=jnp.asarray([*actions, float(found.value)], dtype),
        optimality=found.optimality,
        iterations=jnp.asarray(iterations) + found.iterations,
        status=found.status,
        antipodal=antipodal,
    )


def _action(layer: Layer, path: np.ndarray, log_w: Array) -> Scalar:
    return _compiled_action(layer, jnp.asarray(path), log_w)


_compiled_action = eqx.filter_jit(path_action)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _halved(path: np.ndarray) -> np.ndarray:
    """With the midpoints of all steps."""
    finer = np.empty((2 * len(path) - 1, *path.shape[1:]), path.dtype)
    finer[::2], finer[1::2] = path, unit(path[:-1] + path[1:])
    return finer


@eqx.filter_jit
def _relax(
    problem: Problem,
    start: Float[Array, "k n d"],
    push: Float[Array, "k n d"],
    slots: Int[Array, " n"],
    together: Scalar,
    reference: Scalar,
) -> Found:
    """The minimum of A that a pushed start leads to, particle i moving as particle slots[i] does; its value is A, and
    its optimality that of A/A₀."""

    def move(between: Array, z: Array) -> Array:
        return problem.move(between, z, together)

    found = minimise(
        lambda between: problem.action(between[:, slots]) / reference,
        move,
        move(start, push),
        tolerance=problem.tolerance,
        max_iterations=problem.max_iterations,
    )
    return found._replace(x=found.x[:, slots], value=found.value * reference)
