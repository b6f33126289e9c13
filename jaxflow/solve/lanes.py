"""Many small systems at once, each with its own adaptive steps: an embedded Runge–Kutta method on lanes.

A batch of tiny matrix products is slow one by one and fast side by side. Here the state is one array with a lane axis,
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

Right = Callable[[Array, PyTree], Array]
"""(y, args) -> ẏ; both have the lane axis, the layer is constant."""

Left = Callable[[Array, Array, PyTree], Array]
"""(y, ẏ, args) -> the time left before blow-up."""


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

    y: Array
    t: Float[Array, " n"]
    h: Float[Array, " n"]
    code: Int[Array, " n"]
    steps: Int[Array, " n"]
    rejected: Int[Array, " n"]


def run_lanes(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> Lanes:
    """Carry every lane from its own t to plan.t1, or to its blow-up, or to where it fails.

    Args:
        right: the velocity.
        left: (y, ẏ, args) -> estimate of the time until blow-up, (n,); inf where none is in sight.
        plan: see `Plan`.
        lanes: from `begin_lanes`, or from a run before this one.
        args: what `right` depends on, with the lane axis.

    Returns:
        The lanes; a lane that is still RUNNING has used up max_steps.
    """
    return _run(right, left, plan, lanes, args)  # pyright: ignore[reportReturnType]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> Lanes:
    return _advance(right, left, plan, lanes, args, None)[0]


def begin_lanes(y: Array, axis: int, t0: float) -> Lanes:
    """Lanes at t0. The first step is chosen when they start to run (h = 0 says so)."""
    n = y.shape[axis]
    t, zero = jnp.full(n, t0, y.dtype), jnp.zeros(n, int)
    return Lanes(y, t, jnp.zeros_like(t), zero + RUNNING, zero, zero)


def _forward(right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree) -> tuple[Lanes, Any]:
    return run_lanes(right, left, plan, lanes, args), (lanes, args)


def _backward(right: Right, left: Left, plan: Plan, saved: Any, cotangent: Lanes) -> tuple[Lanes, PyTree]:
    lanes, args = saved
    buffers = (
        jnp.zeros((plan.max_steps, *lanes.y.shape), lanes.y.dtype),
        jnp.zeros((plan.max_steps, *lanes.t.shape), lanes.t.dtype),
    )
    _, recorded, count = _advance(right, left, plan, lanes, args, buffers)
    ys, hs = recorded if recorded is not None else buffers

    def back(i: Array, carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        gy, gargs = carry
        k = count - 1 - i
        _, pull = jax.vjp(lambda y, args: _step(right, plan, y, right(y, args), hs[k], args)[0], ys[k], args)
        dy, dargs = pull(gy)
        return dy, jax.tree.map(jnp.add, gargs, dargs)

    zeros = jax.tree.map(jnp.zeros_like, args)
    gy, gargs = jax.lax.fori_loop(0, count, back, (cotangent.y, zeros))
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


def _over(x: Array, like: Array, axis: int) -> Array:
    """Numbers of lanes, shaped to meet the state."""
    return jnp.expand_dims(x, tuple(i for i in range(like.ndim) if i != axis % like.ndim))


def _step(right: Right, plan: Plan, y: Array, k: Array, h: Array, args: PyTree) -> tuple[Array, Array, Array]:
    """One step of every lane from y with velocity k: the new y, its velocity, and the error estimate."""
    table = tableau(plan.method)
    h = _over(h, y, plan.axis)
    stages = len(table.a_lower) + 1
    ks = [k]

    def combined(coefficients: np.ndarray) -> Array:
        """h Σ_j c_j k_j."""
        if plan.axis == 0:
            return h * sum(float(c) * k for c, k in zip(coefficients, ks) if c != 0)
        # One sum over a buffer: a chain of additions XLA would compute anew in every product that reads it.
        c = jnp.asarray(coefficients, y.dtype).reshape(-1, *[1] * y.ndim)
        return h * jnp.sum(c * buffer[: len(coefficients)], axis=0)

    buffer = jnp.zeros((stages, *y.shape), y.dtype).at[0].set(k)
    new = y
    for i, row in enumerate(table.a_lower):
        new = y + combined(row)
        ks.append(right(new, args))
        buffer = buffer.at[i + 1].set(ks[-1])
    return new, ks[-1], combined(table.b_error)


def _size(x: Array, scale: Array, axis: int) -> Array:
    """Root mean square of x/scale, per lane."""
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    return jnp.sqrt(jnp.mean((x / scale) ** 2, axis=others))


def _first_step(right: Right, plan: Plan, y: Array, k: Array, args: PyTree) -> Array:
    """A first step from sizes of y, ẏ and ÿ (Hairer, Nørsett, Wanner I, II.4)."""
    scale = plan.atol + plan.rtol * jnp.abs(y)
    d0, d1 = _size(y, scale, plan.axis), _size(k, scale, plan.axis)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / jnp.where(d1 > 0, d1, 1))
    moved = right(y + _over(h0, y, plan.axis) * k, args)
    d2 = _size(moved - k, scale, plan.axis) / h0
    steepest = jnp.maximum(d1, d2)
    h1 = jnp.where(
        steepest <= 1e-15,
        jnp.maximum(1e-6, h0 * 1e-3),
        (0.01 / jnp.where(steepest > 0, steepest, 1)) ** (1 / plan.method.order),
    )
    return jnp.minimum(100 * h0, h1)


def _advance(
    right: Right, left: Left, plan: Plan, lanes: Lanes, args: PyTree, buffers: tuple[Array, Array] | None
) -> tuple[Lanes, tuple[Array, Array] | None, Array]:
    """Run the lanes, and record (y, accepted h) of every round where there are buffers for it; the number of rounds."""
    k = right(lanes.y, args)
    h = jnp.where(lanes.h > 0, lanes.h, _first_step(right, plan, lanes.y, k, args))
    smallest = 1e-14 * max(abs(plan.t1), 1e-300)

    def going(carry: Any) -> Array:
        lanes, _, i, _ = carry
        return jnp.any(lanes.code == RUNNING) & (i < plan.max_steps)

    def round_(carry: Any) -> Any:
        lanes, k, i, buffers = carry
        active = lanes.code == RUNNING
        h = jnp.minimum(lanes.h, plan.t1 - lanes.t)
        new, k_new, error = _step(right, plan, lanes.y, k, h, args)
        scale = plan.atol + plan.rtol * jnp.maximum(jnp.abs(lanes.y), jnp.abs(new))
        size = _size(error, scale, plan.axis)
        size = jnp.where(jnp.isfinite(size), size, jnp.inf)
        taken = active & (size <= 1)
        factor = jnp.clip(SAFETY * jnp.maximum(size, 1e-10) ** (-1 / plan.method.order), SHRINK, GROW)
        last = h >= plan.t1 - lanes.t
        t = jnp.where(taken, jnp.where(last, plan.t1, lanes.t + h), lanes.t)
        y = jnp.where(_over(taken, new, plan.axis), new, lanes.y)
        k = jnp.where(_over(taken, new, plan.axis), k_new, k)
        remaining = left(y, k, args)
        code = jnp.where(active & (t >= plan.t1), DONE, lanes.code)
        code = jnp.where(active & (remaining < plan.horizon), BLOW_UP, code)
        code = jnp.where(active & ~taken & (h < smallest), NONFINITE, code)
        # The last step of a run is cut short; the next run goes on with what it would have been.
        kept = jnp.where(
            taken & last, jnp.maximum(lanes.h, h * factor), h * jnp.where(taken, factor, jnp.minimum(factor, 1.0))
        )
        if buffers is not None:
            ys, hs = buffers
            buffers = ys.at[i].set(lanes.y), hs.at[i].set(jnp.where(taken, h, 0.0))
        stepped = Lanes(
            y, t, jnp.where(active, kept, lanes.h), code, lanes.steps + taken, lanes.rejected + (active & ~taken)
        )
        return stepped, k, i + 1, buffers

    begin = (lanes._replace(h=h), k, jnp.asarray(0), buffers)
    lanes, _, count, buffers = jax.lax.while_loop(going, round_, begin)
    return lanes, buffers, count
