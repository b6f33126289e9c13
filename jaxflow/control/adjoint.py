"""Where does a flow with constant pieces end, and how does that answer its layers, for the price of a few flows?

A descent asks for one gradient at a time. Its forward half takes adaptive steps of Dopri8 and writes down where each
began and how long it was; its backward half carries one cotangent p of the end back through these steps, whose lengths
are held fixed,

    p ← (∂Φ/∂y)ᵀ p,    g_i ← g_i + (∂Φ/∂u_i)ᵀ p,                                      `step_back`, stage by stage,

so that it is the exact gradient of what the forward half computed but for the choice of its steps.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxflow._typing import Flag
from jaxflow.control.sensitivity import Sides, stages, step_back, velocity
from jaxflow.control.shoot import MAX_STEPS, Walk, try_step
from jaxflow.gaussian.flow import Terms, time_to_blow_up
from jaxflow.gaussian.parts import parts_of
from jaxflow.measures import Gaussian
from jaxflow.solve.adaptive import blow_up_horizon
from jaxflow.weights import Piecewise

STEPS_A_PIECE = 20
"""MAX_STEPS steps are kept, and so many more for each piece; what needs more in all is as good as a blow-up."""


class _How(NamedTuple):
    """The numerics of a run, hashable: lengths of the pieces and tolerances."""

    lengths: tuple[float, ...]
    rtol: float
    atol: float


class _Record(NamedTuple):
    """The steps that were taken: [L | μ] where each begins (n, d, r + 1), length and piece (n,), and how many."""

    ys: Array
    hs: Array
    of: Array
    taken: Array


def end_of_pieces(
    weights: Piecewise, start: Gaussian, *, rtol: float | None = None, atol: float | None = None
) -> tuple[Gaussian, Flag]:
    """The Gaussian at the end of all pieces, and whether the flow got there (else the last finite one).

    Args:
        rtol, atol: tolerances of a step; the same as in `solve` where they are None.

    Reverse mode in weights and start; works under jit and vmap. Cost: 13 velocities a step, and about 40 with the
    gradient, O(h d³) each; it keeps at most MAX_STEPS + STEPS_A_PIECE·k states.
    """
    parts: Any = jax.vmap(parts_of)(weights.layers)
    layers = Sides(*parts)
    y = jnp.concatenate([start.factor, start.mean[:, None]], axis=1)
    default = 1e-8 if y.dtype == jnp.float64 else 1e-5
    lengths = tuple(np.diff(weights.edges).tolist())
    how = _How(lengths, default if rtol is None else rtol, default if atol is None else atol)
    found: Any = _end(how, layers, y)
    y, arrived = found
    return Gaussian(y[:, -1], y[:, :-1]), arrived


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _end(how: _How, layers: Sides, y: Array) -> tuple[Array, Flag]:
    y, arrived, _ = _walk(how, layers, y)
    return y, arrived


def _forward(how: _How, layers: Sides, y: Array) -> tuple[tuple[Array, Flag], tuple[Sides, _Record]]:
    y, arrived, record = _walk(how, layers, y)
    return (y, arrived), (layers, record)


def _backward(how: _How, saved: tuple[Sides, _Record], cotangent: tuple[Array, Any]) -> tuple[Sides, Array]:
    layers, record = saved
    p, _ = cotangent
    none = jnp.zeros((1, 1), p.dtype)

    def back(i: Array, carry: tuple[Array, Sides]) -> tuple[Array, Sides]:
        p, total = carry
        j = record.taken - 1 - i
        of, h = record.of[j], record.hs[j]
        u = jax.tree.map(lambda x: x[of], layers)
        p, g = step_back(u, h, stages(u, h, record.ys[j]), p, none)
        return p, jax.tree.map(lambda x, dx: x.at[of].add(dx), total, g)

    p, total = jax.lax.fori_loop(0, record.taken, back, (p, jax.tree.map(jnp.zeros_like, layers)))
    return total, p


_end.defvjp(_forward, _backward)


def _walk(how: _How, layers: Sides, y: Array) -> tuple[Array, Flag, _Record]:
    """Adaptive steps over all pieces, and what they were."""
    dtype, shape, k = y.dtype, y.shape, len(how.lengths)
    horizon, lengths = blow_up_horizon(dtype), jnp.asarray(how.lengths, dtype)
    most = MAX_STEPS + STEPS_A_PIECE * k

    def step(carry: tuple[Walk, Array, _Record]) -> tuple[Walk, Array, _Record]:
        now, of, record = carry
        u, length = jax.tree.map(lambda x: x[of], (layers, lengths))

        def speed(_: Array, y: Array) -> Array:
            return length * velocity(u, y.reshape(shape))[0].ravel()

        def left(_: Array, y: Array) -> Array:
            _, K, Sigma = velocity(u, y.reshape(shape))
            return time_to_blow_up(Terms(K - u.A, K, Sigma), power=1) / length

        new = try_step(now, speed, left, horizon, how.rtol, how.atol)
        # A row that was not taken is written over by the next.
        i = record.taken
        kept = record.ys.at[i].set(now.y.reshape(shape)), record.hs.at[i].set(length * (new.s - now.s))
        record = _Record(*kept, record.of.at[i].set(of), i + (new.s > now.s))
        over = new.s >= 1
        alive = new.alive & (record.taken < most)
        new = new._replace(s=jnp.where(over, 0.0, new.s), alive=alive, tries=jnp.where(over, 0, new.tries))
        return new, of + over, record

    def going(carry: tuple[Walk, Array, _Record]) -> Array:
        now, of, _ = carry
        return now.alive & (of < k)

    zero = jnp.zeros((), dtype)
    first = Walk(zero, jnp.asarray(0.25, dtype), y.ravel(), jnp.asarray(True), jnp.asarray(0))
    empty = _Record(jnp.zeros((most, *shape), dtype), jnp.zeros(most, dtype), jnp.zeros(most, int), jnp.asarray(0))
    now, of, record = jax.lax.while_loop(going, step, (first, jnp.asarray(0), empty))
    return now.y.reshape(shape), now.alive & (of >= k), record
