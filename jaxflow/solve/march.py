"""Fixed steps: explicit Runge–Kutta in a scan, with retraction, integrals, random weights and early stop.

y and the observable's integrals step together, z = (y, ∫rates). Steps are grouped as (saves, m₁, m₂) and each level
is checkpointed, so that reverse mode keeps O(√steps) states and recomputes the rest.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxflow._typing import PRNGKey, Scalar
from jaxflow.solve.flow import AbstractFlow
from jaxflow.solve.grid import Grid
from jaxflow.solve.methods import AbstractFixed
from jaxflow.solve.observe import AbstractObservable
from jaxflow.solve.solution import Saved, Status

TOKENS = 0x746F6B65
"""Names the stream of a flow's own noise: no step has this number, so that it never meets the noise of the weights."""


@final
class Carry(eqx.Module):
    """Everything a run needs in order to go on: hand it to the next `march` and nothing tells the two from one."""

    y: PyTree
    rest: PyTree
    noise: PyTree
    integrals: PyTree
    status: Any
    t_end: Scalar
    steps: Array


def axpy(a: Any, x: PyTree, y: PyTree) -> PyTree:
    """y + a x."""
    return jax.tree.map(lambda x, y: y + a * x, x, y)


def zero_integrals(flow: AbstractFlow, observable: AbstractObservable, t: Any, state: Any, noise: Any) -> PyTree:
    """∫ = 0 in the shape of the observable's rates."""

    def rates(t: Any, state: Any, noise: Any) -> PyTree:
        schedule = flow.weights.piece(0)
        v, terms = flow.field(t, state, schedule.at(t, noise))
        return observable.rates(flow, t, state, schedule, noise, v, terms)

    shapes = eqx.filter_eval_shape(rates, t, state, noise)
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def begin(flow: AbstractFlow, state: Any, *, t0: float, observable: AbstractObservable, key: PRNGKey | None) -> Carry:
    """The carry at t0."""
    y, rest = flow.split(state)
    dtype = jax.tree.leaves(y)[0].dtype
    t = jnp.asarray(t0, dtype)
    noise = flow.weights.begin(key)
    integrals = zero_integrals(flow, observable, t, state, noise)
    return Carry(y, rest, noise, integrals, Status.done, t, jnp.asarray(0))


def march(
    flow: AbstractFlow,
    carry: Carry,
    grid: Grid,
    *,
    method: AbstractFixed,
    observable: AbstractObservable,
    key: PRNGKey | None,
) -> tuple[Carry, Saved]:
    """Run the grid's blocks; returns the carry at its end and what was saved after every block."""
    dtype = jax.tree.leaves(carry.y)[0].dtype

    def stage(t: Array, y: PyTree, schedule: Any, noise: Any) -> tuple[PyTree, Any]:
        state = flow.join(y, carry.rest)
        v, terms = flow.field(t, state, schedule.at(t, noise))
        return (v, observable.rates(flow, t, state, schedule, noise, v, terms)), terms

    def step(now: Carry, row: Any) -> Carry:
        t, h, index, piece, came_from = row
        alive = now.status == Status.done
        h = jnp.where(alive, h, 0)
        schedule = flow.weights.piece(piece)
        noise = now.noise
        after = flow.weights.advance(noise, h, None if key is None else jax.random.fold_in(key, index), t)
        state = flow.join(now.y, now.rest)

        integrals = now.integrals
        if flow.weights.edges:
            integrals = _add_jump(flow, observable, t, state, integrals, piece, came_from, alive)

        z = (now.y, integrals)
        ks: list[PyTree] = []
        first_terms = None
        for a_i, c_i in zip(method.a, method.c):
            z_i = z
            for a_ij, k_j in zip(a_i, ks):
                if a_ij != 0:
                    z_i = axpy(a_ij * h, k_j, z_i)
            between = noise if c_i == 0 or noise is None else axpy(c_i, axpy(-1, noise, after), noise)
            k_i, terms = stage(t + c_i * h, z_i[0], schedule, between)
            first_terms = terms if first_terms is None else first_terms
            ks.append(k_i)
        left = flow.time_left(state, first_terms)
        for b_i, k_i in zip(method.b, ks):
            z = axpy(b_i * h, k_i, z)
        y, integrals = z
        if key is not None:
            shake = flow.shake(now.y, h, jax.random.fold_in(jax.random.fold_in(key, TOKENS), index))
            y = y if shake is None else axpy(1, shake, y)
        y = y if flow.retraction is None else flow.retraction(y)
        if flow.weights.random:
            kick = observable.kick(flow, t, state, schedule, (noise, after), h, first_terms)
            integrals = integrals if kick is None else axpy(1, kick, integrals)
        return _accept(now, y, integrals, after, t, h, left, flow.lost(flow.join(y, now.rest)))

    # A padded step has length zero for every member of a batch, so this stays a branch under vmap.
    def step_or_skip(now: Carry, row: Any) -> tuple[Carry, None]:
        return jax.lax.cond(row[1] > 0, step, lambda now, row: now, now, row), None

    def inner(now: Carry, rows: Any) -> tuple[Carry, None]:
        return jax.lax.scan(jax.checkpoint(step_or_skip), now, rows)

    def block(now: Carry, rows: Any) -> tuple[Carry, Saved]:
        *steps, ts = rows
        now, _ = jax.lax.scan(jax.checkpoint(inner), now, tuple(steps))
        state = flow.join(now.y, now.rest)
        measured = observable.measure(flow, ts, state, flow.weights.piece(rows[3][-1, -1]), now.noise)
        return now, Saved(state, measured, now.integrals, now.status == Status.done)

    rows = (
        jnp.asarray(grid.t, dtype),
        jnp.asarray(grid.h, dtype),
        jnp.asarray(grid.index),
        jnp.asarray(grid.piece),
        jnp.asarray(grid.came_from),
        jnp.asarray(grid.ts, dtype),
    )
    return jax.lax.scan(block, carry, rows)


def _add_jump(
    flow: AbstractFlow,
    observable: AbstractObservable,
    t: Array,
    state: Any,
    integrals: PyTree,
    piece: Array,
    came_from: Array,
    alive: Array,
) -> PyTree:
    """The integrals after a change of layer, if this step begins with one."""
    before, after = flow.weights.piece(came_from).at(t), flow.weights.piece(piece).at(t)
    if observable.jump(flow, t, state, before, after) is None:
        return integrals

    def changed(integrals: PyTree) -> PyTree:
        return axpy(jnp.where(alive, 1.0, 0.0), observable.jump(flow, t, state, before, after), integrals)

    return jax.lax.cond(piece != came_from, changed, lambda integrals: integrals, integrals)


def _accept(
    now: Carry, y: PyTree, integrals: PyTree, noise: Any, t: Array, h: Array, left: Array | None, lost: Array | None
) -> Carry:
    """The carry after a step: moved on if the result is finite, not lost, and no blow-up comes within half a step."""
    alive = now.status == Status.done
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]))
    blows_up = jnp.asarray(False) if left is None else left < h / 2
    gone = jnp.asarray(False) if lost is None else lost & finite
    go = alive & finite & ~blows_up & ~gone
    status = Status.where(finite | ~alive, now.status, Status.nonfinite)
    status = Status.where(gone & alive, Status.unresolved, status)
    status = Status.where(blows_up & alive, Status.blow_up, status)
    t_end = jnp.where(go, t + h, jnp.where(alive & blows_up, t + (0 if left is None else left), now.t_end))

    def keep(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda new, old: jnp.where(go, new, old), new, old)

    return Carry(
        keep(y, now.y), now.rest, keep(noise, now.noise), keep(integrals, now.integrals), status, t_end, now.steps + go
    )
