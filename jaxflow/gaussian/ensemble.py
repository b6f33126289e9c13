"""Thousands of Gaussians under layers of their own, faster than a vmap: equation (1.1) on lanes.

L̇ = KL, μ̇ = (K + ΣcV)μ + b, K = A + Σ_h c_hV_hΣB_h, Σ = LLᵀ. Matrices of a few rows are multiplied lane by lane with the
systems as the last, contiguous axis; larger ones by batched products. Blocks of systems are solved one after the other,
each system with steps of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow.errors import InputError
from jaxflow.gaussian.observables import kappa_eff
from jaxflow.gaussian.parts import Parts, parts_of
from jaxflow.measures import Gaussian
from jaxflow.solve import AbstractMethod, Dopri8, Status
from jaxflow.solve import lanes as on
from jaxflow.solve.adaptive import blow_up_horizon
from jaxflow.solve.spread import spread
from jaxflow.weights import AbstractSchedule, Constant, Layer, Piecewise
from jaxflow.weights.layer import Direction
from jaxflow.weights.schedules import Held

LANES_LAST = 8
"""Up to this dimension systems are the last axis; above it, batched matrix products are faster on a CPU."""


@final
class Ensemble(eqx.Module):
    """Where N systems ended.

    Attributes:
        final: Gaussians with a leading axis N: at t1, or at the last step before a blow-up, always finite.
        status: a `Status` for each, compare with `==`.
        t_end: t1, or the blow-up time, or the time of the last finite state, (N,).
        kappa: κ_eff = max_h ‖LᵀB_hL‖₂ at `final`, (N,).
        steps, rejected: taken and rejected by each, (N,).
    """

    final: Gaussian
    status: Any
    t_end: Float[Array, " N"]
    kappa: Float[Array, " N"]
    steps: Int[Array, " N"]
    rejected: Int[Array, " N"]


def ensemble(
    weights: AbstractSchedule | Layer,
    starts: Gaussian,
    *,
    t1: float,
    t0: float = 0.0,
    direction: Direction | None = None,
    method: AbstractMethod | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 2048,
    block: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Ensemble:
    """Move N Gaussians from t0 to t1, each under its own layer or layers.

    The same mathematics as `jax.vmap` over `solve(MomentFlow(...), ...)`, much faster for many small systems (see
    benchmarks/README.md). Works under jit and reverse-mode grad (discrete adjoint; memory of one block).

    Args:
        weights: a Layer whose arrays have a leading axis N (`make_layer(..., lead=1)`), or a Constant or Piecewise
            schedule of such (`eqx.filter_vmap(jf.weights.Constant)(...)`).
        starts: mean (N, d), factor (N, d, r).
        t0, t1: Python numbers.
        direction: for tied heads.
        method: `Dopri8()` (default) or `Tsit5()`.
        rtol, atol: default 1e-8 in float64, 1e-5 in float32, for each system separately.
        max_steps: for each piece of the schedule.
        block: systems solved side by side; default chosen by d and device.
        devices: spread the systems over these, which then work without a word to each other; default: where the
            arrays are. Also the way to use every core of a CPU: `jf.runtime.configure(cpu_devices=2)`, then
            `devices=jax.devices()`.

    Returns:
        An Ensemble. Blow-up of one system does not disturb the others.

    Raises:
        InputError: shapes or types do not fit, or the schedule is neither constant nor piecewise constant.

    Cost: about 4 matrix products of size d (2 + 2h of them for h heads) an evaluation, 13 evaluations a step.

    Source: arXiv:2606.07600, equation (1.1).
    """
    method = Dopri8() if method is None else method
    on.tableau(method)
    check_same_dtype({"starts": starts, "weights": weights})
    layers, edges = _pieces(weights, float(t0), float(t1))
    N, d = _check_batch(layers, starts)
    dtype = starts.factor.dtype
    tolerance = 1e-8 if dtype == jnp.float64 else 1e-5
    rtol, atol = (tolerance if x is None else x for x in (rtol, atol))
    check_positive(rtol, "rtol")
    check_positive(atol, "atol")
    parts = jax.vmap(jax.vmap(lambda layer: parts_of(layer, direction)))(layers)
    axis = -1 if d <= LANES_LAST else 0
    shares = 1 if devices is None else len(devices)
    block = min(-(-N // shares), _block(d, N, shares) if block is None else block)
    horizon = blow_up_horizon(dtype) * (t1 - t0)

    y = (starts.factor, starts.mean[..., None])
    blocks = -(-N // (block * shares)) * shares
    # A block takes as many rounds as its slowest system, and the first speed ‖K‖ foretells who is slow. Blocks are
    # filled up with copies of the last system, whose results are dropped.
    order = jnp.argsort(_first_speed(starts.factor, Parts(*(x[0] for x in parts))))
    # Blocks are dealt to the devices in turn, so that each gets slow and fast ones.
    place = np.arange(blocks * block).reshape(blocks // shares, shares, block).swapaxes(0, 1).ravel()
    fill = order[np.minimum(place, N - 1)].reshape(blocks, block)

    def one(rows: tuple[tuple[Array, Array], Parts]) -> on.Lanes:
        y, parts = rows
        y = _pack(*(jnp.moveaxis(x, 0, axis) for x in y), axis)
        lanes, t_end = on.begin_lanes(y, axis, t0), jnp.full(block, t0, dtype)
        for i, end in enumerate(edges[1:]):
            plan = on.Plan(method, axis, end, rtol, atol, max_steps, horizon)
            args = _matrices(Parts(*(x[:, i] for x in parts)), axis)
            # Only lanes that reached the end of the last layer go on.
            code = jnp.where(lanes.code == on.DONE, on.RUNNING, STUCK) if i else lanes.code
            code = jnp.where((lanes.code == on.BLOW_UP) | (lanes.code == on.NONFINITE), lanes.code, code)
            right, left = _Right(axis), _Left(axis, horizon)
            lanes = on.run_lanes(right, left, plan, lanes._replace(code=code), args)
            fresh = (code == on.RUNNING) & (lanes.code == on.BLOW_UP)
            remaining = left(lanes.y, right(lanes.y, args), args)
            t_end = jnp.where(code == on.RUNNING, lanes.t + jnp.where(fresh, remaining, 0), t_end)
        y = tuple(jnp.moveaxis(x, axis, 0) for x in _unpack(lanes.y, axis))
        return lanes._replace(y=y, t=t_end)

    rows = jax.tree.map(lambda x: x[fill], (y, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), parts)))
    lanes = spread(_blockwise(one), rows, devices)
    back = jnp.asarray(np.argsort(place))[jnp.argsort(order)]
    lanes = jax.tree.map(lambda x: x.reshape(blocks * block, *x.shape[2:])[back], lanes)
    final = Gaussian(lanes.y[1][..., 0], lanes.y[0])
    kappa = jax.vmap(kappa_eff)(jax.tree.map(lambda x: x[-1], layers), final)
    return Ensemble(final, jax.vmap(_status)(lanes.code), lanes.t, kappa, lanes.steps, lanes.rejected)


def _blockwise(one: Callable[[Any], on.Lanes]) -> Callable[[Any], on.Lanes]:
    """`one`, mapped over the leading axis one block after the other."""

    def several(rows: Any) -> on.Lanes:
        if jax.tree.leaves(rows)[0].shape[0] == 1:
            return jax.tree.map(lambda x: x[None], one(jax.tree.map(lambda x: x[0], rows)))
        return jax.lax.map(one, rows)

    return several


STUCK = 4
"""The code of a lane that used up its steps in an earlier layer."""


class _Matrices(NamedTuple):
    """One layer of every lane: A, b, V = [c₁V₁ … c_hV_h] (d, h·d), B likewise, ΣcV; each with the lane axis."""

    A: Array
    b: Array
    V: Array
    B: Array
    total: Array


def _matrices(parts: Parts, axis: int) -> _Matrices:
    A, b, cV, B = parts
    n, h, d, _ = cV.shape

    def side_by_side(X: Array) -> Array:
        return jnp.moveaxis(X, 1, 2).reshape(n, d, h * d)

    given = (A, b[..., None], side_by_side(cV), side_by_side(B), cV.sum(1))
    return _Matrices(*(jnp.moveaxis(x, 0, axis) for x in given))


def _product(X: Array, Y: Array, axis: int) -> Array:
    """X Y for every lane."""
    if axis == 0:
        return X @ Y
    return jnp.sum(X[:, :, None] * Y[None], axis=1)


def _attention(L: Array, m: _Matrices, axis: int) -> tuple[Array, Array]:
    """Σ = LLᵀ and Q = Σ_h c_hV_hΣB_h."""
    Sigma = _product(L, jnp.swapaxes(L, 0, 1) if axis else jnp.swapaxes(L, 1, 2), axis)
    if m.B.shape[1 if axis else 2] == 0:
        return Sigma, jnp.zeros_like(Sigma)
    SB = _product(Sigma, m.B, axis)
    d = Sigma.shape[1]
    h = SB.shape[1 if axis else 2] // d
    if h > 1:
        shape = SB.shape
        SB = SB.reshape(d, h, d, shape[2]) if axis else SB.reshape(shape[0], d, h, d)
        SB = (
            jnp.swapaxes(SB, 0, 1).reshape(h * d, d, shape[2])
            if axis
            else jnp.swapaxes(SB, 1, 2).reshape(shape[0], h * d, d)
        )
    return Sigma, _product(m.V, SB, axis)


def _pack(L: Array, mu: Array, axis: int) -> Any:
    """The state on lanes: one array [L | μ] where kernels are small and few count, two where copies do."""
    return jnp.concatenate([L, mu], 1) if axis else (L, mu)


def _unpack(y: Any, axis: int) -> tuple[Array, Array]:
    """L and μ as a column."""
    return (y[:, :-1], y[:, -1:]) if axis else y


class _Right(NamedTuple):
    """L̇ = KL, μ̇ = (K + ΣcV)μ + b."""

    axis: int

    def __call__(self, y: Any, m: _Matrices) -> Any:
        L, mu = _unpack(y, self.axis)
        K = m.A + _attention(L, m, self.axis)[1]
        columns = 1 if self.axis else 2
        dmu = jnp.sum((K + m.total) * jnp.swapaxes(mu, columns - 1, columns), axis=columns, keepdims=True) + m.b
        return _pack(_product(K, L, self.axis), dmu, self.axis)


class _Left(NamedTuple):
    """tr Σ / (2 tr QΣ), as in MomentFlow.time_left, worked out only where Σ grows so fast that it matters."""

    axis: int
    horizon: float

    def __call__(self, y: Any, dy: Any, m: _Matrices) -> Array:
        rows = (0, 1) if self.axis else (1, 2)
        (L, _), (dL, _) = _unpack(y, self.axis), _unpack(dy, self.axis)
        size = jnp.sum(L * L, axis=rows)
        fast = 2 * jnp.sum(L * dL, axis=rows) > 0.1 * size / self.horizon

        def precise(_: None) -> Array:
            Sigma, Q = _attention(L, m, self.axis)
            growth = 2 * jnp.sum(Q * Sigma, axis=rows)
            return jnp.where(growth > 0, size / jnp.where(growth > 0, growth, 1), jnp.inf)

        return jax.lax.cond(jnp.any(fast), precise, lambda _: jnp.full_like(size, jnp.inf), None)


def _first_speed(L: Array, parts: Parts) -> Array:
    """‖A + Q‖ at the start, for every system."""
    m = _matrices(parts, 0)
    return jnp.linalg.norm(m.A + _attention(L, m, 0)[1], axis=(1, 2))


def _status(code: Array) -> Any:
    status = Status.where(code == on.DONE, Status.done, Status.max_steps)
    status = Status.where(code == on.BLOW_UP, Status.blow_up, status)
    return Status.where(code == on.NONFINITE, Status.nonfinite, status)


def _block(d: int, N: int, shares: int) -> int:
    """Systems side by side. On a CPU: what stays in the cache; for larger matrices on a single device, enough for its
    products to use several cores. Elsewhere all."""
    if jax.default_backend() != "cpu":
        return N
    if d <= LANES_LAST:
        return 32
    return max(1, min(256, 2**18 // d**2)) if shares == 1 else max(1, min(32, 2**13 // d**2))


def _pieces(weights: AbstractSchedule | Layer, t0: float, t1: float) -> tuple[Layer, tuple[float, ...]]:
    """The layers with a leading axis over pieces, and the times between them, from t0 to t1."""
    if not t1 > t0:
        raise InputError("must lie after t0", where="t1", got=f"t0={t0}, t1={t1}", expected="t0 < t1")
    if isinstance(weights, Layer):
        return jax.tree.map(lambda x: x[None], weights), (t0, t1)
    if isinstance(weights, Constant | Held):
        return jax.tree.map(lambda x: x[None], weights.layer), (t0, t1)
    if isinstance(weights, Piecewise):
        edges = weights.edges
        if t0 < edges[0] or t1 > edges[-1] * (1 + 1e-12):
            raise InputError(
                "run beyond the schedule of layers", where="t0, t1", got=f"[{t0:g}, {t1:g}]",
                expected=f"within [{edges[0]:g}, {edges[-1]:g}]",
            )  # fmt: skip
        kept = [i for i in range(len(edges) - 1) if edges[i] < t1 and edges[i + 1] > t0]
        layers = jax.tree.map(lambda x: jnp.stack([x[:, i] for i in kept]), weights.layers)
        return layers, (t0, *(edges[i + 1] for i in kept[:-1]), t1)
    raise InputError(
        "is not piecewise constant",
        where="weights",
        got=type(weights).__name__,
        expected="a Layer, Constant or Piecewise with a leading axis over systems",
        fix="use jax.vmap over jf.solve for other schedules",
    )


def _check_batch(layers: Layer, starts: Gaussian) -> tuple[int, int]:
    """(N, d)."""
    if starts.mean.ndim != 2:
        raise InputError(
            "must have one leading axis over systems", where="starts.mean", got=starts.mean.shape, expected="(N, d)",
            fix="for a single system use jf.solve with gaussian.MomentFlow",
        )  # fmt: skip
    N, d = starts.mean.shape
    for name in ("A", "b", "B", "V", "mass"):
        x = getattr(layers, name)
        matrix = {"A": 4, "b": 3, "B": 5, "V": 5, "mass": 3}[name]
        if x is not None and (x.ndim != matrix or x.shape[1] != N):
            raise InputError(
                "must have a leading axis over systems", where=f"weights.{name}", got=x.shape[1:],
                expected=f"({N}, ...)", fix="make_layer(..., lead=1), or eqx.filter_vmap over the schedule",
            )  # fmt: skip
    if layers.dim != d:
        raise InputError("lives in another dimension than the weights", where="starts", got=d, expected=f"{layers.dim}")
    return N, d
