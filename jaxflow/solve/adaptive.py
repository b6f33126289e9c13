"""Adaptive steps by diffrax: one solve per smooth piece of the schedule, integrals as extra components.

Looking a piecewise-constant layer up by time inside the vector field would force tiny steps across every jump; here
each piece is a solve of its own, chained in a scan.
"""

from typing import Any, Literal

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from jaxflow._typing import Scalar
from jaxflow.linalg import safe_norm
from jaxflow.solve.flow import AbstractFlow
from jaxflow.solve.grid import piece_at
from jaxflow.solve.march import axpy, zero_integrals
from jaxflow.solve.methods import AbstractAdaptive
from jaxflow.solve.observe import AbstractObservable
from jaxflow.solve.retracted import Retracted
from jaxflow.solve.solution import End, Saved, Status


def blow_up_horizon(dtype: Any) -> float:
    """Blow-up is declared once the time left falls below this fraction of the run: as small as times can resolve."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def _rms(x: PyTree) -> Scalar:
    """Root mean square over all entries; 0, with derivative 0, at zero."""
    flat, _ = ravel_pytree(x)
    return safe_norm(flat) / max(flat.size, 1) ** 0.5


def _error_norm(z: PyTree) -> Scalar:
    """The larger of the rms of the state and of the integrals: many tokens must not drown one integral's error."""
    y, integrals = z
    return jnp.maximum(_rms(y), _rms(integrals)) if jax.tree.leaves(integrals) else _rms(y)


ADJOINTS = {
    "reverse": diffrax.RecursiveCheckpointAdjoint,
    "forward": diffrax.ForwardMode,
    "direct": diffrax.DirectAdjoint,
}


def integrate(
    flow: AbstractFlow,
    state: Any,
    *,
    t0: float,
    t1: float,
    ts: np.ndarray,
    method: AbstractAdaptive,
    rtol: float,
    atol: float,
    max_steps: int,
    gradient: Literal["reverse", "forward", "direct"],
    observable: AbstractObservable,
) -> tuple[Saved, End]:
    """Solve from t0 to t1 and save at ts, increasing in (t0, t1]."""
    y, rest = flow.split(state)
    dtype = jax.tree.leaves(y)[0].dtype
    pieces, starts, ends, slots, where = _per_piece(flow.weights.edges, t0, t1, ts)
    controller = diffrax.PIDController(rtol=rtol, atol=atol, norm=_error_norm)
    retract = flow.retraction
    solver = method.solver() if retract is None else Retracted(method.solver(), retract)
    horizon = blow_up_horizon(dtype) * (t1 - t0)

    def left(t: Array, z: PyTree, schedule: Any) -> Array | None:
        now = flow.join(z[0], rest)
        return flow.time_left(now, flow.field(t, now, schedule.at(t))[1])

    def rhs(t: Array, z: PyTree, schedule: Any) -> PyTree:
        now = flow.join(z[0], rest)
        v, terms = flow.field(t, now, schedule.at(t))
        return v, observable.rates(flow, t, now, schedule, None, v, terms)

    def near_blow_up(t: Any, z: PyTree, args: Any, **_: Any) -> Array:
        remaining = left(t, z, args)
        assert remaining is not None
        return remaining < horizon

    def is_lost(t: Any, z: PyTree, args: Any, **_: Any) -> Array:
        found = flow.lost(flow.join(z[0], rest))
        assert found is not None
        return found

    integrals = zero_integrals(flow, observable, jnp.asarray(t0, dtype), state, None)
    can_blow_up = eqx.filter_eval_shape(left, jnp.asarray(t0, dtype), (y, None), flow.weights.piece(0)) is not None
    can_be_lost = eqx.filter_eval_shape(lambda y: flow.lost(flow.join(y, rest)), y) is not None
    assert not (can_blow_up and can_be_lost)
    event = diffrax.Event(near_blow_up) if can_blow_up else diffrax.Event(is_lost) if can_be_lost else None
    empty = {"steps": jnp.asarray(0), "rejected": jnp.asarray(0)}

    def one(carry: Any, row: Any) -> tuple[Any, Any]:
        z, status, t_end, stats = carry
        i, start, end, saves = row
        schedule = flow.weights.piece(i)
        alive = status == Status.done
        end = jnp.where(alive, end, start)
        if flow.weights.edges:
            z = (z[0], _after_jump(flow, observable, start, flow.join(z[0], rest), z[1], i, int(pieces[0]), alive))
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(rhs),  # pyright: ignore[reportArgumentType]
            solver,
            start,
            end,
            None,
            z,
            schedule,
            saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=jnp.minimum(saves, end)), diffrax.SubSaveAt(t1=True)]),
            stepsize_controller=controller,
            adjoint=ADJOINTS[gradient](),
            event=event,
            max_steps=max_steps,
            throw=False,
        )
        (_, (t_last,)), (z_saved, z_last) = sol.ts, sol.ys  # pyright: ignore[reportGeneralTypeIssues]
        z_last = jax.tree.map(lambda x: x[0], z_last)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(z_last)]))
        z_next = jax.tree.map(lambda new, old: jnp.where(alive & finite, new, old), z_last, z)
        fresh = _status(sol.result, finite, Status.unresolved if can_be_lost else Status.blow_up)
        status = Status.where(alive, fresh, status)
        if can_blow_up:
            remaining = left(t_last, z_next, schedule)
            t_last = jnp.where(fresh == Status.blow_up, t_last + remaining, t_last)
        t_end = jnp.where(alive & finite, t_last, t_end)
        stats = {
            "steps": stats["steps"] + sol.stats["num_accepted_steps"],
            "rejected": stats["rejected"] + sol.stats["num_rejected_steps"],
        }
        return (z_next, status, t_end, stats), z_saved

    begin = ((y, integrals), Status.done, jnp.asarray(t0, dtype), empty)
    rows = (jnp.asarray(pieces), *(jnp.asarray(x, dtype) for x in (starts, ends, slots)))
    if len(pieces) == 1:
        (z, status, t_end, stats), z_saved = one(begin, jax.tree.map(lambda x: x[0], rows))
        z_saved = jax.tree.map(lambda x: x[None], z_saved)
    else:
        (z, status, t_end, stats), z_saved = jax.lax.scan(one, begin, rows)
    valid = jnp.asarray(ts, dtype) <= t_end
    z_saved = _fill_unreached(jax.tree.map(lambda x: x[where], z_saved), z, valid)

    def measure(row: Any) -> tuple[Any, PyTree]:
        t, y, i = row
        now = flow.join(y if retract is None else retract(y), rest)
        return now, observable.measure(flow, t, now, flow.weights.piece(i), None)

    states, measured = jax.lax.map(measure, (jnp.asarray(ts, dtype), z_saved[0], jnp.asarray(pieces[where[0]])))
    return Saved(states, measured, z_saved[1], valid), End(status, t_end, stats)


def _fill_unreached(saved: PyTree, last: PyTree, valid: Array) -> PyTree:
    """Slots that were not reached hold inf; they become the last finite entry, so that no loss ever meets inf."""

    def fill(x: Array, y: Array) -> Array:
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 1)), x, y[None])

    return jax.tree.map(fill, saved, last)


def _per_piece(
    edges: tuple[float, ...], t0: float, t1: float, ts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Which pieces the run crosses, where each starts and ends, its saved times (filled up with its end), and where
    in that table each time of ts stands."""
    cuts = np.array([t0, *[e for e in edges[1:-1] if t0 < e < t1], t1])
    starts, ends = cuts[:-1], cuts[1:]
    pieces = np.array([piece_at(edges, t) for t in starts])
    owner = np.clip(np.searchsorted(ends, ts, side="left"), 0, len(ends) - 1)
    slot = np.arange(len(ts)) - np.searchsorted(owner, owner, side="left")
    slots = np.tile(ends[:, None], (1, int(slot.max()) + 1))
    slots[owner, slot] = ts
    return pieces, starts, ends, slots, (owner, slot)


def _after_jump(
    flow: AbstractFlow,
    observable: AbstractObservable,
    t: Array,
    state: Any,
    integrals: PyTree,
    i: Array,
    first: int,
    alive: Array,
) -> PyTree:
    """The integrals after the change of layer at the start of piece i; the first piece of a run begins without one."""
    before, after = flow.weights.piece(jnp.maximum(i - 1, first)).at(t), flow.weights.piece(i).at(t)
    jump = observable.jump(flow, t, state, before, after)
    return integrals if jump is None else axpy(jnp.where(alive, 1.0, 0.0), jump, integrals)


def _status(result: Any, finite: Array, event: Any) -> Any:
    """diffrax's result in our words; `event` is what an event stands for."""
    R = diffrax.RESULTS
    status = Status.where(result == R.successful, Status.done, Status.nonfinite)
    status = Status.where(result == R.max_steps_reached, Status.max_steps, status)
    status = Status.where(result == R.event_occurred, event, status)
    return Status.where(finite, status, Status.nonfinite)
