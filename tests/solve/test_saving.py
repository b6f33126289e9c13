"""One run, however it is looked at: saved every so often, at given times, at the end, whole or in parts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import problems
import pytest
from compiled import run

from jaxflow.gaussian import moments
from jaxflow.particles import AttentionFlow, balance
from jaxflow.solve import RK4, Euler, Observe, begin, make_grid, march, solve
from jaxflow.solve.observe import Nothing
from jaxflow.weights import OrnsteinUhlenbeck, Piecewise


def test_save_every_save_at_and_final_are_one_run():
    options = {"t1": 1.0, "dt": 0.1, "observe": lambda t, s: (t, s.mean)}
    every = run(problems.moments, problems.START, save_every=3, **options)
    np.testing.assert_allclose(every.ts, [0, 0.3, 0.6, 0.9, 1.0], rtol=1e-15)
    at = run(problems.moments, problems.START, save_at=[0.3, 0.9], **options)
    end = run(problems.moments, problems.START, **options)
    np.testing.assert_array_equal(at.ts, [0.3, 0.9])
    np.testing.assert_array_equal(end.ts, [0.0, 1.0])
    np.testing.assert_allclose(at.states.factor, every.states.factor[jnp.asarray([1, 3])], atol=1e-14)
    for sol in (every, at, end):
        np.testing.assert_allclose(sol.final.factor, every.states.factor[-1], atol=1e-14)
        np.testing.assert_array_equal(sol.observables[0], sol.ts)
        np.testing.assert_array_equal(sol.observables[1], sol.states.mean)
        assert bool(sol.valid.all())
        assert float(sol.t_end) == 1.0
        assert int(sol.stats["steps"]) == 10
    np.testing.assert_array_equal(every.states.mean[0], problems.START.mean)


@pytest.mark.slow
@pytest.mark.parametrize("flow", [problems.moments, problems.layered])
def test_adaptive_runs_pass_through_the_states_of_shorter_runs(flow):
    tight = {"rtol": 1e-11, "atol": 1e-11}
    long = run(flow, problems.START, t1=1.0, save_at=[0.0, 0.2, 0.3, 0.5, 0.7, 1.0], **tight)
    np.testing.assert_array_equal(long.states.mean[0], problems.START.mean)
    assert bool(long.valid.all())
    # Saved states come from dense output, one order less accurate than the steps.
    short = run(flow, problems.START, t1=0.7, **tight)
    np.testing.assert_allclose(long.states.factor[4], short.final.factor, atol=1e-8)
    fixed = run(flow, problems.START, t1=1.0, dt=5e-3, save_at=[0.0, 0.2, 0.3, 0.5, 0.7, 1.0])
    np.testing.assert_allclose(long.states.factor, fixed.states.factor, atol=1e-8)
    np.testing.assert_allclose(long.final.mean, fixed.final.mean, atol=1e-9)


@pytest.mark.parametrize("t0", [0.25, 0.3])
@pytest.mark.parametrize(
    "options", [{"dt": 2e-3}, pytest.param({"rtol": 1e-11, "atol": 1e-11}, marks=pytest.mark.slow)]
)
def test_a_run_may_start_late(t0, options):
    """Within a piece and at an edge; the layers are those of absolute time."""
    first = run(problems.layered, problems.START, t1=t0, **options).final
    rest = run(problems.layered, first, t0=t0, t1=1.0, **options).final
    whole = run(problems.layered, problems.START, t1=1.0, **options).final
    np.testing.assert_allclose(rest.factor, whole.factor, atol=1e-9)


LAYERS = AttentionFlow(Piecewise(D=oracles.symmetric(6, 3).reshape(3, 2, 3, 3), t1=0.9), direction="ascend")
NOISY = AttentionFlow(OrnsteinUhlenbeck(initial=oracles.symmetric(2, 3), mean=np.eye(3)), direction="descend")


@pytest.mark.parametrize(
    ("flow", "start", "method", "observable", "random"),
    [
        (problems.moments, problems.START, RK4(), moments, False),
        (LAYERS, problems.TOKENS, RK4(), balance, False),
        (NOISY, problems.TOKENS, Euler(), balance, True),
    ],
    ids=["moments", "layers", "noisy"],
)
def test_a_run_cut_in_two_is_the_uncut_run_to_the_last_bit(flow, start, method, observable, random):
    key = jax.random.key(0) if random else None
    flow = observable.prepare(flow, start)
    grid = make_grid(0.0, 0.9, dt=0.05, edges=flow.weights.edges, save_every=3)
    go = eqx.filter_jit(lambda c, g: march(flow, c, g, method=method, observable=observable, key=key))
    carry = begin(flow, start, t0=0.0, observable=observable, key=key)
    whole, saved = go(carry, grid)
    middle, first = go(carry, grid[:3])
    last, second = go(middle, grid[3:])
    joined = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first, second)
    for a, b in [(whole, last), (saved, joined)]:
        jax.tree.map(np.testing.assert_array_equal, a, b)
    assert int(last.steps) == grid.steps


def test_constant_weights_are_piecewise_weights_that_do_not_change():
    same = [np.stack([x, x, x]) for x in (problems.A, problems.b, problems.B, problems.V)]
    flow = type(problems.steady)(Piecewise(**dict(zip(("A", "b", "B", "V"), same)), durations=[0.3, 0.2, 0.5]))
    for options in ({"dt": 0.05}, {"rtol": 1e-12, "atol": 1e-12}):
        a = run(problems.steady, problems.START, t1=1.0, **options).final
        b = run(flow, problems.START, t1=1.0, **options).final
        np.testing.assert_allclose(a.factor, b.factor, atol=1e-12)
        np.testing.assert_allclose(a.mean, b.mean, atol=1e-12)


def test_vmap_is_a_loop_and_jit_is_eager():
    starts = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x, -x]), problems.START)
    for options in ({"dt": 0.25}, {"rtol": 1e-6, "atol": 1e-6}):
        together = eqx.filter_jit(jax.vmap(lambda s, o=options: run(problems.moments, s, t1=0.5, **o)))(starts)
        for i in range(3):
            one = run(problems.moments, jax.tree.map(lambda x, i=i: x[i], starts), t1=0.5, **options)
            np.testing.assert_allclose(together.final.factor[i], one.final.factor, atol=1e-13)
            assert together.stats["steps"][i] == one.stats["steps"]
    eager = solve(problems.moments, problems.START, t1=0.5, dt=0.25)
    compiled = run(problems.moments, problems.START, t1=0.5, dt=0.25)
    np.testing.assert_allclose(eager.final.factor, compiled.final.factor, atol=1e-14)


def test_what_is_integrated_is_what_is_watched():
    """A function of (t, state) given as `observe` is evaluated at the saved times and at no other."""
    sol = run(problems.steady, problems.START, t1=0.5, dt=0.1, save_every=1, observe=Observe(lambda t, s: t**2))
    np.testing.assert_allclose(sol.observables, np.asarray(sol.ts) ** 2, rtol=1e-15)
    assert run(problems.steady, problems.START, t1=0.5, dt=0.1, observe=Nothing()).observables is None
