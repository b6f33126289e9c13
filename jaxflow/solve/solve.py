"""solve(flow, state, ...) -> Solution: the front door of both back-ends."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow._typing import PRNGKey
from jaxflow.errors import InputError
from jaxflow.solve.adaptive import integrate
from jaxflow.solve.flow import AbstractFlow
from jaxflow.solve.grid import check_times, make_grid, piece_at
from jaxflow.solve.march import begin, march
from jaxflow.solve.methods import RK4, AbstractAdaptive, AbstractFixed, AbstractMethod, Euler, Tsit5
from jaxflow.solve.observe import AbstractObservable, Nothing, Observe
from jaxflow.solve.solution import End, Saved, Solution

LONGEST_FLOAT32 = 1000.0
"""Beyond this time float32 cannot resolve adaptive steps (diffrax#756 stalls there)."""


def solve(
    flow: AbstractFlow,
    state: Any,
    *,
    t1: float,
    t0: float = 0.0,
    method: AbstractMethod | None = None,
    dt: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    save_every: int | None = None,
    save_at: Sequence[float] | np.ndarray | None = None,
    observe: AbstractObservable | Callable[[Any, Any], PyTree] | None = None,
    key: PRNGKey | None = None,
    gradient: Literal["reverse", "forward", "direct"] = "reverse",
    max_steps: int = 65536,
) -> Solution:
    """Move a state along a flow from t0 to t1.

    Works under jit, vmap, grad and jvp. Nothing here is compiled as a whole: wrap repeated calls in `eqx.filter_jit`.

    Args:
        flow: for instance `particles.AttentionFlow` or `gaussian.MomentFlow`.
        state: what it starts from (a Cloud, a Gaussian); single: use `jax.vmap` for ensembles.
        t0, t1: Python numbers; depth in units of one layer's time.
        method: `Euler()`, `Heun()`, `RK4()` step by `dt`; `Tsit5()`, `Dopri8()`, `Kvaerno5()` adapt to `rtol`, `atol`.
            Default: with dt `RK4()` (`Euler()` with noise), without dt `Tsit5()`.
        dt: largest step of a fixed method; stretches between layer changes and saved times get equal steps ≤ dt.
        rtol, atol: tolerances of an adaptive method (default 1e-8 in float64, 1e-5 in float32). The global error is
            usually 10 to 1000 times larger.
        save_every: fixed methods: save t0 and every so many steps. save_at: save exactly these times.
            Neither: save t0 and t1.
        observe: an observable such as `particles.balance`, or a function (t, state) -> pytree.
        key: needed if the weights are random or noise moves the state.
        gradient: "reverse" (checkpointed), "forward" (for jvp, jacfwd) or "direct" (both, more memory); adaptive
            methods only, fixed ones differentiate either way.
        max_steps: of an adaptive method, for each piece of the schedule.

    Returns:
        A Solution. Check `sol.status`, or call `sol.raise_if_failed()` on the host. Finite-time blow-up is a result:
        status `blow_up`, its time in `t_end`, and every array finite.

    Raises:
        InputError: arguments that fit neither the flow nor each other.
    """
    flow.check(state)
    check_same_dtype({"state": state, "weights": flow.weights})
    t0, t1 = _number(t0, "t0"), _number(t1, "t1")
    method = _choose(method, dt, flow.random)
    edges = flow.weights.edges
    given = {"dt": dt, "rtol": rtol, "atol": atol, "save_every": save_every, "key": key}
    _check_options(method, flow, jax.tree.leaves(state)[0].dtype, longest=max(abs(t0), abs(t1)), given=given)
    check_times(t0, t1, dt=dt, save_every=save_every, save_at=save_at, edges=edges)
    observable = _observable(observe)
    flow = observable.prepare(flow, state).settle(state, t0, t1)

    dtype = jax.tree.leaves(flow.split(state)[0])[0].dtype
    wanted = np.array([t0, t1]) if save_at is None else np.asarray(save_at, float)
    later = np.unique(np.append(wanted[wanted > t0], t1))
    carry = begin(flow, state, t0=t0, observable=observable, key=key)
    if isinstance(method, AbstractFixed):
        assert dt is not None
        at = None if save_every is not None else later.tolist()
        grid = make_grid(t0, t1, dt=dt, edges=edges, save_every=save_every, save_at=at)
        last, saved = march(flow, carry, grid, method=method, observable=observable, key=key)
        later, wanted = grid.ts, wanted if save_every is None else np.append(t0, grid.ts)
        end = End(last.status, last.t_end, {"steps": last.steps, "rejected": jnp.asarray(0)})
    else:
        assert isinstance(method, AbstractAdaptive)
        tolerance = 1e-8 if dtype == jnp.float64 else 1e-5
        saved, end = integrate(
            flow,
            state,
            t0=t0,
            t1=t1,
            ts=later,
            method=method,
            rtol=tolerance if rtol is None else rtol,
            atol=tolerance if atol is None else atol,
            max_steps=max_steps,
            gradient=gradient,
            observable=observable,
        )
    start = flow.weights.piece(piece_at(edges, t0))
    measured = observable.measure(flow, jnp.asarray(t0, dtype), state, start, carry.noise)
    first = Saved(state, measured, carry.integrals, jnp.asarray(True))
    everything = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, saved)
    # t1 is always solved for; only the times asked for are returned.
    times = np.append(t0, later)
    kept = jax.tree.map(lambda x: x[np.isin(times, wanted)], everything)
    return Solution(
        ts=jnp.asarray(times[np.isin(times, wanted)], dtype),
        states=kept.state,
        observables=observable.report(kept.measured, kept.integrals),
        valid=kept.valid,
        status=end.status,
        t_end=end.t_end,
        final=jax.tree.map(lambda x: x[-1], saved.state),
        stats={**end.stats, **flow.facts(state)},
    )


def _observable(observe: AbstractObservable | Callable[[Any, Any], PyTree] | None) -> AbstractObservable:
    """The observable that `observe` stands for."""
    if isinstance(observe, AbstractObservable):
        return observe
    return Nothing() if observe is None else Observe(observe)


def _choose(method: AbstractMethod | None, dt: float | None, random: bool) -> AbstractMethod:
    """The default method for these arguments."""
    if method is not None:
        return method
    if random:
        return Euler()
    return Tsit5() if dt is None else RK4()


def _check_options(
    method: AbstractMethod,
    flow: AbstractFlow,
    dtype: Any,
    *,
    longest: float,
    given: dict[str, Any],
) -> None:
    """Every option given must apply to this method and this flow."""
    fixed, random = isinstance(method, AbstractFixed), flow.random
    name = type(method).__name__
    if flow.weights.random and not isinstance(method, Euler):
        raise InputError(
            "does not apply to random weights",
            where="method",
            got=name,
            expected="Euler() with dt",
            fix="or draw one path first, weights.sample(key, ts), and solve along that with any method",
        )
    flow.check_method(method)
    if random and given["key"] is None:
        what = "the weights are random" if flow.weights.random else "noise moves the tokens"
        raise InputError(f"is needed: {what}", where="key", fix="pass key=jax.random.key(0)")
    if not random and given["key"] is not None:
        raise InputError("does not apply: nothing here is random", where="key", fix="leave key out")
    alien = ("rtol", "atol") if fixed else ("dt", "save_every")
    for option in alien:
        if given[option] is not None:
            raise InputError(
                f"does not apply to {name}()",
                where=option,
                got=given[option],
                fix="leave it out, or choose Tsit5()" if fixed else "use rtol, atol and save_at, or choose RK4()",
            )
    if fixed and given["dt"] is None:
        raise InputError(f"is needed by {name}()", where="dt", expected="a step length, such as dt=0.01")
    for option in ("rtol", "atol"):
        if given[option] is not None:
            check_positive(given[option], option)
    if not fixed and dtype == jnp.float32 and longest > LONGEST_FLOAT32:
        raise InputError(
            "is too long for adaptive steps in float32",
            where="t1",
            got=longest,
            expected=f"at most {LONGEST_FLOAT32:g}",
            fix="run in float64, or take a fixed method with dt",
        )


def _number(t: Any, where: str) -> float:
    """t as a Python float: the table of steps and saves is made before tracing."""
    try:
        return float(t)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
        raise InputError(
            "must be a plain number, known before tracing",
            where=where,
            got=type(t).__name__,
            fix="to vary the horizon inside jit, scale the weights instead: layers V, A, b times t1 on [0, 1]",
        ) from error
