"""Where do these layers lead? Twice: precisely, and roughly but quickly differentiable.

A search asks for the end of the moment flow once for every trial and for its derivative in every control once an
iteration. The end is integrated with adaptive steps, so that no blow-up hides between the nodes of a grid; the
derivative, which only has to point the right way, by a few RK4 steps on every piece. Both loop over stages: a program
that holds one evaluation of the velocity compiles in a fraction of the time of one that holds thirteen.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxflow._typing import Flag, Scalar
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import Dopri8, lanes
from jaxflow.solve.adaptive import blow_up_horizon
from jaxflow.weights import AbstractSchedule, Layer, Piecewise, Sampled
from jaxflow.weights.schedules import Held

MAX_STEPS = 100
"""Steps, taken or rejected, of the precise integration on one piece; what needs more is as good as a blow-up."""

RK4_A, RK4_B, RK4_C = np.array([0, 0.5, 0.5, 1]), np.array([1, 2, 2, 1]) / 6, np.array([0, 0.5, 0.5, 1])


def finest(dtype: Any) -> float:
    """The relative and absolute error of a precise step."""
    return 1e-13 if dtype == jnp.float64 else 1e-6


class _Piece(NamedTuple):
    """What acts on [begin, begin + length]. Integrations run over s = (t − begin)/length in [0, 1]."""

    schedule: Any
    begin: Array
    length: Array


def _velocity(piece: _Piece, s: Array, mu: Array, L: Array) -> tuple[Array, Array, Any]:
    """dμ/ds, dL/ds and the terms they came from."""
    layer = piece.schedule.at(piece.begin + piece.length * s)
    (dmu, dL), terms = MomentFlow(piece.schedule).field(0.0, Gaussian(mu, L), layer)
    return piece.length * dmu, piece.length * dL, terms


class Walk(NamedTuple):
    """An adaptive integration under way: place s, step h, state y, whether it goes on, and how many tries it had."""

    s: Array
    h: Array
    y: Array
    alive: Flag
    tries: Array


def end_of(schedule: AbstractSchedule, start: Gaussian, t1: float) -> tuple[Gaussian, Flag]:
    """The Gaussian at t1 to rounding, and whether the flow got there (else the last finite one)."""
    nodes, arrived, _ = nodes_of(schedule, start, t1)
    return jax.tree.map(lambda x: x[-1], nodes), arrived


def nodes_of(schedule: AbstractSchedule, start: Gaussian, t1: float) -> tuple[Gaussian, Flag, Array]:
    """The Gaussians at the ends of all pieces to rounding, with a leading axis, whether the flow got to the last, and
    how many steps each piece took.

    Dopri8 with adaptive steps on every piece. Not differentiable; see `rough_end`. Works under vmap; a lane that has
    arrived stands still.
    """
    dtype = start.mean.dtype
    y0, unravel = ravel_pytree((start.mean, start.factor))
    pieces, complete = _pieces(schedule, t1, dtype)
    horizon, eps = blow_up_horizon(dtype), finest(dtype)

    def over(carry: tuple[Array, Array, Flag], piece: _Piece) -> tuple[tuple[Array, Array, Flag], tuple[Array, Array]]:
        y, h, alive = carry
        piece = complete(piece)

        def velocity(s: Array, y: Array) -> Array:
            dmu, dL, _ = _velocity(piece, s, *unravel(y))
            return jnp.concatenate([dmu, dL.ravel()])

        def left(s: Array, y: Array) -> Array:
            mu, L = unravel(y)
            *_, terms = _velocity(piece, s, mu, L)
            return MomentFlow(piece.schedule).time_left(Gaussian(mu, L), terms) / piece.length

        def going(now: Walk) -> Array:
            return now.alive & (now.s < 1)

        def step(now: Walk) -> Walk:
            return try_step(now, velocity, left, horizon, eps, eps)

        zero = jnp.zeros((), dtype)
        now = jax.lax.while_loop(going, step, Walk(zero, h, y, alive, jnp.asarray(0)))
        return (now.y, now.h, now.alive & (now.s >= 1)), (now.y, now.tries)

    begin = (y0, jnp.asarray(0.25, dtype), jnp.asarray(True))
    (_, _, arrived), (ys, tries) = jax.lax.scan(over, begin, pieces)
    return Gaussian(*jax.vmap(unravel)(ys)), arrived, tries


def try_step(now: Walk, velocity: Any, left: Any, horizon: float, rtol: float, atol: float) -> Walk:
    """One try of an embedded step of Dopri8 on a piece.

    Args:
        velocity: (s, y) ↦ dy/ds. left: (s, y) ↦ the time left before blow-up, in units of the piece.
        horizon: below which time left it has blown up.
    """
    dtype = now.y.dtype
    a, c, _, b_error = (jnp.asarray(x, dtype) for x in dopri8())
    stages = len(c)
    rows = (a, c, jnp.arange(stages))
    h = jnp.minimum(now.h, 1 - now.s)

    def stage(carry: tuple[Array, Array], row: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        ks, _ = carry
        a, c, i = row
        y = now.y + h * (a @ ks)
        return (ks.at[i].set(velocity(now.s + c * h, y)), y), None

    # The last stage is the new point itself.
    (ks, new), _ = jax.lax.scan(stage, (jnp.zeros((stages, now.y.size), dtype), now.y), rows)
    error = h * (b_error @ ks)
    scale = atol + rtol * jnp.maximum(jnp.abs(now.y), jnp.abs(new))
    # Where a derivative passes, it takes the steps as they are.
    size = jax.lax.stop_gradient(jnp.sqrt(jnp.mean((error / scale) ** 2)))
    size = jnp.where(jnp.isfinite(size), size, jnp.inf)
    taken = size <= 1
    factor = lanes.step_factor(size, Dopri8().order)
    s = jnp.where(taken, jnp.where(h >= 1 - now.s, 1.0, now.s + h), now.s)
    y = jnp.where(taken, new, now.y)
    # A step that the end of the piece cut short says little about the next one.
    following = jnp.where(taken & (s >= 1), jnp.maximum(now.h, h * factor), h * factor)
    alive = (h > 1e-13) & (left(s, y) > horizon) & (now.tries < MAX_STEPS)
    return Walk(s, jnp.minimum(following, 1.0), y, alive, now.tries + 1)


def dopri8() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The square tableau: a, c, the weights of the solution and of the error. Its last stage is the new point."""
    table = lanes.tableau(Dopri8())
    stages = len(table.a_lower) + 1
    a = np.zeros((stages, stages))
    for i, row in enumerate(table.a_lower):
        a[i + 1, : len(row)] = row
    return a, np.append(0.0, table.c), np.asarray(table.b_sol), np.asarray(table.b_error)


def rough_end(schedule: AbstractSchedule, start: Gaussian, t1: float, steps: int) -> Gaussian:
    """The Gaussian at t1 by so many RK4 steps on every piece: differentiable in the schedule and the start, and cheap
    to differentiate many times over (`vmap` of its pull-back)."""
    dtype = start.mean.dtype
    a, b, c = (jnp.asarray(x, dtype) for x in (RK4_A, RK4_B, RK4_C))
    Y = tuple[Array, Array]
    pieces, complete = _pieces(schedule, t1, dtype)

    def moved(y: Y, c: Array, k: Y) -> Y:
        return y[0] + c * k[0], y[1] + c * k[1]

    def over(y: Y, piece: _Piece) -> tuple[Y, None]:
        piece = complete(piece)

        def step(y: Y, i: Array) -> tuple[Y, None]:
            def stage(carry: tuple[Y, Y], row: tuple[Array, Array, Array]) -> tuple[tuple[Y, Y], None]:
                # Every stage of the classical method looks at the one before it alone.
                k, total = carry
                a, b, c = row
                *k, _ = _velocity(piece, (i + c) / steps, *moved(y, a / steps, k))
                return ((k[0], k[1]), moved(total, b / steps, (k[0], k[1]))), None

            none = (jnp.zeros_like(y[0]), jnp.zeros_like(y[1]))
            (_, y), _ = jax.lax.scan(stage, (none, y), (a, b, c))
            return y, None

        return jax.lax.scan(step, y, jnp.arange(steps, dtype=dtype))[0], None

    y, _ = jax.lax.scan(over, (start.mean, start.factor), pieces)
    return Gaussian(*y)


class Share(NamedTuple):
    """How n steps are shared among k pieces: how many each gets, (k,); and the piece and the place there of every step,
    (n,)."""

    many: Array
    of: Array
    within: Array

    @property
    def last(self) -> Array:
        """The last step of every piece, (k,)."""
        return jnp.cumsum(self.many) - 1


def share(pace: Array, steps: int) -> Share:
    """Steps in proportion to `pace`, (k,), at least one each."""
    k = pace.shape[0]
    ends = jnp.arange(1, k + 1) + jnp.round((steps - k) * jnp.cumsum(pace) / jnp.sum(pace)).astype(int)
    count = jnp.diff(ends, prepend=0)
    of = jnp.searchsorted(ends, jnp.arange(steps), side="right")
    return Share(count, of, jnp.arange(steps) - (ends - count)[of])


def smooth_nodes(
    schedule: AbstractSchedule, start: Gaussian, t1: float, pace: Array, *, steps: int
) -> tuple[Gaussian, Scalar]:
    """The Gaussians at the ends of all pieces, with a leading axis, and the kinetic energy ∫ |μ̇|² + |L̇|² dt, by so many
    steps of Dopri8 in all: differentiable, and near enough to the precise path for its derivatives to be used where
    that path is optimised.

    Args:
        pace: how the steps are shared among the pieces, (k,): in proportion, at least one each.
    """
    shared = share(pace, steps)
    path, energy = smooth_path(schedule, start, t1, shared)
    return jax.tree.map(lambda x: x[shared.last], path), energy


def smooth_path(schedule: AbstractSchedule, start: Gaussian, t1: float, shared: Share) -> tuple[Gaussian, Scalar]:
    """The same with the Gaussians at the ends of all steps."""
    dtype = start.mean.dtype
    a, c, b, _ = (jnp.asarray(x, dtype) for x in dopri8())
    # The last stage serves the error estimate alone.
    stages = len(c) - 1
    rows = (a[:stages, :stages], c[:stages], jnp.arange(stages))
    y0, unravel = ravel_pytree((start.mean, start.factor, jnp.zeros((), dtype)))
    pieces, complete = _pieces(schedule, t1, dtype)
    place = shared.within.astype(dtype), shared.many[shared.of].astype(dtype)

    def step(y: Array, now: tuple[_Piece, Array, Array]) -> tuple[Array, Array]:
        piece, i, n = now
        piece = complete(piece)

        def stage(ks: Array, row: tuple[Array, Array, Array]) -> tuple[Array, None]:
            a, c, j = row
            mu, L, _ = unravel(y + jnp.sum(a[:, None] * ks, axis=0) / n)
            dmu, dL, _ = _velocity(piece, (i + c) / n, mu, L)
            rate = (jnp.sum(dmu**2) + jnp.sum(dL**2)) / piece.length
            k = jnp.concatenate([dmu, dL.ravel(), rate[None]])
            return jnp.where((jnp.arange(stages) == j)[:, None], k[None, :], ks), None

        ks, _ = jax.lax.scan(stage, jnp.zeros((stages, y.size), dtype), rows)
        y = y + jnp.sum(b[:stages, None] * ks, axis=0) / n
        return y, y

    end, ys = jax.lax.scan(step, y0, (jax.tree.map(lambda x: x[shared.of], pieces), *place))
    means, factors, _ = jax.vmap(unravel)(ys)
    return Gaussian(means, factors), end[-1]


def _pieces(schedule: AbstractSchedule, t1: float, dtype: Any) -> tuple[_Piece, Callable[[_Piece], _Piece]]:
    """The pieces between edges, with a leading axis, and what completes one of them: a scan carries arrays only, and
    a schedule may hold functions. Constant pieces carry their own layer alone."""
    edges = np.asarray(schedule.edges or (0.0, t1), float)
    begin, length = (jnp.asarray(x, dtype) for x in (edges[:-1], np.diff(edges)))
    if isinstance(schedule, Piecewise):
        layers: Layer = schedule.layers
        return _Piece(Held(layer=layers), begin, length), lambda piece: piece
    if isinstance(schedule, Sampled) and len(edges) == len(schedule.ts):
        # Knots at the edges: a straight line carries its own two layers.
        ends = [jax.tree.map(lambda x, i=i: x[i : len(edges) - 1 + i], schedule.layers) for i in (0, 1)]
        layers = jax.tree.map(lambda *x: jnp.stack(x, 1), *ends)

        def line(piece: _Piece) -> _Piece:
            ts = jnp.stack([piece.begin, piece.begin + piece.length])
            return piece._replace(schedule=Sampled(ts=ts, layers=piece.schedule))

        return _Piece(layers, begin, length), line
    arrays, rest = eqx.partition(schedule, eqx.is_array)
    count = len(edges) - 1
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), arrays)
    return _Piece(rows, begin, length), lambda piece: piece._replace(schedule=eqx.combine(piece.schedule, rest))
