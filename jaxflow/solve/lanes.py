"""Many small systems at once, each with its own adaptive steps: an embedded Runge–Kutta method on lanes.

A batch of tiny matrix products is slow one by one and fast side by side. Here every array of the state has a lane axis,
first or last as suits the products, and every lane has its own time, step and verdict; finished lanes stand still.
Reverse-mode derivatives replay the accepted steps (discrete adjoint, step sizes held fixed).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxflow.errors import InputError
from jaxflow.solve.methods import AbstractMethod, Dopri8, Tsit5

RUNNING, DONE, BLOW_UP, NONFINITE = 0, 1, 2, 3
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0

SEGMENT = 64
"""Rounds whose states a derivative keeps at once; of all others only every 64th is kept, and they are run again."""

Right = Callable[[PyTree, PyTree], PyTree]
"""(y, args) -> ẏ; all have the lane axis, the layer is constant."""

Left = Callable[[PyTree, PyTree, PyTree], Array]
"""(y, ẏ, args) -> the time left before blow-up, (n,); inf where none is in sight."""


class Plan(NamedTuple):
    """The numerics of a run, hashable.

    `axis`: where the lanes are, 0 or −1. `horizon`: blow-up is declared when the time left falls below it.
    """

    method: AbstractMethod
    axis: int
    t1: float
    rtol: float
    atol: float
    max_steps: int
    horizon: float


class Lanes(NamedTuple):
    """Lanes on their way: state y, time t, next step h, verdict, and counts of steps taken and rejected."""

    y: PyTree
    t: Float[Array, " n"]
    h: Float[Array, " n"]
    code: Int[Array, " n"]
    steps: Int[Array, " n"]
    rejected: Int[Array, " n"]


def run_lanes(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> Lanes:
    """Carry every lane from its own t to plan.t1, or to its blow-up, or to where it fails.

    Args:
        right: the velocity.
        left: the time left before blow-up.
        plan: see `Plan`.
        lanes: from `begin_lanes`, or from a run before this one.
        args: what `right` depends on, with the lane axis.

    Returns:
        The lanes; a lane that is still RUNNING has used up max_steps.
    """
    return _run(right, left, plan, lanes, args)  # pyright: ignore[reportReturnType]


def begin_lanes(y: PyTree, axis: int, t0: float) -> Lanes:
    """Lanes at t0. The first step is chosen when they start to run (h = 0 says so)."""
    leaf = jax.tree.leaves(y)[0]
    t, zero = jnp.full(leaf.shape[axis], t0, leaf.dtype), jnp.zeros(leaf.shape[axis], int)
    return Lanes(y, t, jnp.zeros_like(t), zero + RUNNING, zero, zero)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> Lanes:
    lanes = lanes._replace(h=_first_steps(right, plan, lanes, args))
    return _advance(right, left, plan, lanes, args, plan.max_steps)[0]


def _forward(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> tuple[Lanes, Any]:
    return run_lanes(right, left, plan, lanes, args), (lanes, args)


def _backward(right: Right, left: Left, plan: Plan, saved: Any, cotangent: Lanes) -> tuple[Lanes, PyTree]:
    """Run again and keep the lanes at the start of each segment; then, from the last segment to the first, run it once
    more with every state kept, and pull the cotangent back through its steps."""
    lanes, args = saved
    started = lanes._replace(h=_first_steps(right, plan, lanes, args))
    segments = -(-plan.max_steps // SEGMENT)
    kept = jax.tree.map(lambda x: jnp.zeros((segments, *x.shape), x.dtype), started)

    def unfinished(carry: Any) -> Array:
        now, _, i = carry
        return jnp.any(now.code == RUNNING) & (i < segments)

    def keep(carry: Any) -> Any:
        now, kept, i = carry
        kept = jax.tree.map(lambda xs, x: xs.at[i].set(x), kept, now)
        return _advance(right, left, plan, now, args, SEGMENT)[0], kept, i + 1

    _, kept, used = jax.lax.while_loop(unfinished, keep, (started, kept, jnp.asarray(0)))

    def back_through_segment(i: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        begun = jax.tree.map(lambda xs: xs[used - 1 - i], kept)
        _, (ys, hs), count = _advance(right, left, plan, begun, args, SEGMENT, record=True)

        def back(j: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            gy, gargs = carry
            k = count - 1 - j
            y = jax.tree.map(lambda x: x[k], ys)
            _, pull = jax.vjp(lambda y, args: _step(right, plan, y, right(y, args), hs[k], args)[0], y, args)
            dy, dargs = pull(gy)
            return dy, jax.tree.map(jnp.add, gargs, dargs)

        return jax.lax.fori_loop(0, count, back, carry)

    zeros = jax.tree.map(jnp.zeros_like, args)
    gy, gargs = jax.lax.fori_loop(0, used, back_through_segment, (cotangent.y, zeros))
    none = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), (lanes.code, lanes.steps, lanes.rejected))
    return Lanes(gy, jnp.zeros_like(lanes.t), jnp.zeros_like(lanes.h), *none), gargs


_run.defvjp(_forward, _backward)


def tableau(method: AbstractMethod) -> diffrax.ButcherTableau:
    """The coefficients of an explicit adaptive method whose last stage is the velocity at the new point.

    Raises:
        InputError: the method is implicit or has fixed steps.
    """
    if isinstance(method, Dopri8 | Tsit5):
        return {Dopri8: diffrax.Dopri8, Tsit5: diffrax.Tsit5}[type(method)].tableau
    raise InputError(
        "does not run on lanes", where="method", got=type(method).__name__, expected="Dopri8() or Tsit5()",
        fix="use jax.vmap over jf.solve for other methods",
    )  # fmt: skip


def step_factor(size: Array, order: int) -> Array:
    """By what to change a step whose error is `size` times the tolerance: SAFETY · size^{−1/order}, within bounds."""
    return jnp.clip(SAFETY * jnp.maximum(size, 1e-10) ** (-1 / order), SHRINK, GROW)


def _over(x: Array, like: Array, axis: int) -> Array:
    """Numbers of lanes, shaped to meet an array of the state."""
    return jnp.expand_dims(x, tuple(i for i in range(like.ndim) if i != axis % like.ndim))


def _step(right: Right, plan: Plan, y: PyTree, k: PyTree, h: Array, args: PyTree) -> tuple[PyTree, PyTree, PyTree]:
    """One step of every lane from y with velocity k: the new y, its velocity, and the error estimate."""
    table = tableau(plan.method)
    stages = len(table.a_lower) + 1

    def combined(coefficients: np.ndarray, ks: list[Array], buffer: Array) -> Array:
        """h Σ_j c_j k_j."""
        over = _over(h, ks[0], plan.axis)
        if plan.axis == 0:
            return over * sum(float(c) * k for c, k in zip(coefficients, ks) if c != 0)
        # One sum over a buffer: a chain of additions XLA would compute anew in every product that reads it.
        c = jnp.asarray(coefficients, buffer.dtype).reshape(-1, *[1] * ks[0].ndim)
        return over * jnp.sum(c * buffer[: len(coefficients)], axis=0)

    leaves, structure = jax.tree.flatten(y)
    ks = [[x] for x in jax.tree.leaves(k)]
    buffers = [jnp.zeros((stages, *x.shape), x.dtype).at[0].set(k[0]) for x, k in zip(leaves, ks)]
    new = leaves
    for i, row in enumerate(table.a_lower):
        new = [x + combined(row, of, buffer) for x, of, buffer in zip(leaves, ks, buffers)]
        velocity = jax.tree.leaves(right(structure.unflatten(new), args))
        ks = [[*k, v] for k, v in zip(ks, velocity)]
        buffers = [buffer.at[i + 1].set(v) for buffer, v in zip(buffers, velocity)]
    error = [combined(table.b_error, of, buffer) for of, buffer in zip(ks, buffers)]
    return structure.unflatten(new), structure.unflatten([k[-1] for k in ks]), structure.unflatten(error)


def _size(x: PyTree, scale: PyTree, axis: int) -> Array:
    """Root mean square of x/scale over all entries, per lane."""

    def squares(x: Array, scale: Array) -> Array:
        return jnp.sum((x / scale) ** 2, axis=tuple(i for i in range(x.ndim) if i != axis % x.ndim))

    parts = jax.tree.leaves(jax.tree.map(squares, x, scale))
    entries = sum(leaf.size for leaf in jax.tree.leaves(x)) // parts[0].shape[0]
    return jnp.sqrt(sum(parts[1:], parts[0]) / entries)


def _first_steps(right: Right, plan: Plan, lanes: Lanes, args: PyTree) -> Array:
    """The steps lanes bring along; for fresh ones from sizes of y, ẏ and ÿ (Hairer, Nørsett, Wanner I, II.4)."""
    y, k = lanes.y, right(lanes.y, args)
    scale = jax.tree.map(lambda x: plan.atol + plan.rtol * jnp.abs(x), y)
    d0, d1 = _size(y, scale, plan.axis), _size(k, scale, plan.axis)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / jnp.where(d1 > 0, d1, 1))
    moved = right(jax.tree.map(lambda x, v: x + _over(h0, x, plan.axis) * v, y, k), args)
    d2 = _size(jax.tree.map(jnp.subtract, moved, k), scale, plan.axis) / h0
    steepest = jnp.maximum(d1, d2)
    h1 = jnp.where(
        steepest <= 1e-15,
        jnp.maximum(1e-6, h0 * 1e-3),
        (0.01 / jnp.where(steepest > 0, steepest, 1)) ** (1 / plan.method.order),
    )
    return jnp.where(lanes.h > 0, lanes.h, jnp.minimum(100 * h0, h1))


def _advance(
    right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree, rounds: int, *, record: bool = False
) -> tuple[Lanes, Any, Array]:
    """At most so many rounds of one step of every lane, from the lanes' own h > 0.

    Returns:
        The lanes; the states and accepted steps of every round, if asked for; and the number of rounds.
    """
    smallest = 1e-14 * max(abs(plan.t1), 1e-300)

    def empty(x: Array) -> Array:
        return jnp.zeros((rounds, *x.shape), x.dtype)

    def choose(where: Array, new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda x, z: jnp.where(_over(where, x, plan.axis), x, z), new, old)

    def going(carry: Any) -> Array:
        lanes, _, i, _ = carry
        return jnp.any(lanes.code == RUNNING) & (i < rounds)

    def round_(carry: Any) -> Any:
        lanes, k, i, buffers = carry
        active = lanes.code == RUNNING
        h = jnp.minimum(lanes.h, plan.t1 - lanes.t)
        new, k_new, error = _step(right, plan, lanes.y, k, h, args)
        scale = jax.tree.map(lambda x, z: plan.atol + plan.rtol * jnp.maximum(jnp.abs(x), jnp.abs(z)), lanes.y, new)
        size = _size(error, scale, plan.axis)
        size = jnp.where(jnp.isfinite(size), size, jnp.inf)
        taken = active & (size <= 1)
        factor = step_factor(size, plan.method.order)
        last = h >= plan.t1 - lanes.t
        t = jnp.where(taken, jnp.where(last, plan.t1, lanes.t + h), lanes.t)
        y, k = choose(taken, new, lanes.y), choose(taken, k_new, k)
        code = jnp.where(active & (t >= plan.t1), DONE, lanes.code)
        code = jnp.where(active & (left(y, k, args) < plan.horizon), BLOW_UP, code)
        code = jnp.where(active & ~taken & (h < smallest), NONFINITE, code)
        # The last step of a run is cut short; the next run goes on with what it would have been.
        following = h * jnp.where(taken, factor, jnp.minimum(factor, 1.0))
        following = jnp.where(taken & last, jnp.maximum(lanes.h, following), following)
        if record:
            ys, hs = buffers
            ys = jax.tree.map(lambda xs, x: xs.at[i].set(x), ys, lanes.y)
            buffers = ys, hs.at[i].set(jnp.where(taken, h, 0.0))
        following = jnp.where(active, following, lanes.h)
        stepped = Lanes(y, t, following, code, lanes.steps + taken, lanes.rejected + (active & ~taken))
        return stepped, k, i + 1, buffers

    buffers = (jax.tree.map(empty, lanes.y), empty(lanes.h)) if record else None
    begin = (lanes, right(lanes.y, args), jnp.asarray(0), buffers)
    lanes, _, count, buffers = jax.lax.while_loop(going, round_, begin)
    return lanes, buffers, count
