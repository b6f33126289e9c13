"""How a run says that something happened, and that nothing is NaN when it does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from compiled import run

from jaxflow.errors import NumericalError
from jaxflow.gaussian import Gaussian, MomentFlow, moments, scalar_blowup_time, scalar_variance
from jaxflow.solve import Euler, Heun, Status, Tsit5, adaptive, solve
from jaxflow.weights import Constant, Function, Piecewise, make_layer

A, C, L0 = 0.3, 1.0, 0.5
SCALAR = MomentFlow(Constant(A=[[A]], B=[[C]], V=[[1.0]]))
HALF = Gaussian(jnp.zeros(1), jnp.asarray([[np.sqrt(L0)]]))
GOLDEN = 0.7833393820762261
TIMES = [0.0, 0.3, 0.7, 0.78, 0.79, 1.5]


@pytest.mark.parametrize(
    ("options", "accuracy"),
    [({"dt": 1e-3}, 1e-4), ({"dt": 1e-3, "method": Heun()}, 2e-3), ({"rtol": 1e-11, "atol": 1e-11}, 1e-8)],
    ids=["RK4", "Heun", "Tsit5"],
)
def test_blow_up_is_a_result(options, accuracy):
    sol = run(SCALAR, HALF, t1=1.5, save_at=TIMES, observe=moments, **options)
    assert sol.outcome == "blow_up"
    assert bool(sol.status == Status.blow_up)
    np.testing.assert_allclose(sol.t_end, GOLDEN, rtol=accuracy)
    np.testing.assert_array_equal(sol.valid, [True, True, True, True, False, False])
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((sol.states, sol.observables, sol.final)))
    variance = sol.observables.covariance[:3, 0, 0]
    np.testing.assert_allclose(variance, scalar_variance(A, C, L0, jnp.asarray(TIMES[:3])), rtol=100 * accuracy)
    # What was not reached repeats the last state that was.
    np.testing.assert_array_equal(sol.states.factor[4:], jnp.stack([sol.final.factor] * 2))
    assert float(sol.final.factor[0, 0]) > 10
    assert sol.raise_if_failed() is sol


@pytest.mark.parametrize(
    ("options", "accuracy"),
    [({"dt": 1e-3}, 1e-3), ({"rtol": 1e-10, "atol": 1e-10}, 1e-8)],
    ids=["fixed", "adaptive"],
)
def test_a_run_that_blows_up_in_one_layer_does_not_go_on_in_the_next(options, accuracy):
    """ℓ' = 2ℓ², ℓ(0) = ½ has ℓ = 1/(2(1 − t)) and t* = 1, in the second of three layers; the last decays."""
    flow = MomentFlow(
        Piecewise(
            A=np.array([0, 0, -5.0])[:, None, None],
            B=np.ones((3, 1, 1)),
            V=np.ones((3, 1, 1)),
            durations=[0.6, 0.8, 0.6],
        )
    )
    times = [0.0, 0.5, 0.6, 0.9, 1.2, 1.4, 1.7, 2.0]
    sol = run(flow, HALF, t1=2.0, save_at=times, observe=moments, **options)
    assert sol.outcome == "blow_up"
    np.testing.assert_allclose(sol.t_end, 1.0, rtol=accuracy)
    np.testing.assert_array_equal(sol.valid, np.asarray(times) < 1)
    variance = sol.states.factor[:4, 0, 0] ** 2
    np.testing.assert_allclose(variance, 0.5 / (1 - np.asarray(times[:4])), rtol=1e-6)
    for saved in (sol.states.factor, sol.observables.log_det_growth, sol.observables.covariance):
        assert bool(jnp.isfinite(saved).all())
        np.testing.assert_array_equal(saved[4:], jnp.stack([saved[-1]] * 4))
    assert float(sol.final.factor[0, 0]) > 10


def test_the_time_left_at_the_last_step_is_counted(monkeypatch):
    """Without A, ℓ = 1/(2c(t* − t)), and tr Σ/(2 tr QΣ) = 1/(2cℓ) = t* − t exactly, at any distance."""
    monkeypatch.setattr(adaptive, "blow_up_horizon", lambda dtype: 1e-2)
    flow = MomentFlow(Constant(B=[[C]], V=[[1.0]]))
    sol = eqx.filter_jit(lambda start: solve(flow, start, t1=4.0, rtol=1e-10, atol=1e-10))(HALF)
    np.testing.assert_allclose(sol.t_end, 1.0, rtol=1e-8)
    assert float(sol.final.factor[0, 0]) ** 2 < 1e6


@pytest.mark.slow
def test_the_blow_up_of_one_does_not_touch_the_others():
    """Nor their gradients: a batch with one member that blows up, differentiated as a whole."""
    sizes = jnp.asarray([0.1, 0.5, 0.05])

    def loss(sizes, **options):
        def one(size):
            sol = run(SCALAR, Gaussian(jnp.zeros(1), jnp.sqrt(size)[None, None]), t1=1.0, **options)
            return sol.final.factor[0, 0] ** 2, sol

        values, sols = jax.vmap(one)(sizes)
        return jnp.sum(jnp.where(sols.status == Status.done, values, 0.0)), sols

    def slope(l):
        return (scalar_variance(A, C, l + 1e-6, 1.0) - scalar_variance(A, C, l - 1e-6, 1.0)) / 2e-6

    for options in ({"dt": 2e-3}, {"rtol": 1e-9, "atol": 1e-9}):
        f = eqx.filter_jit(jax.grad(lambda s, o=options: loss(s, **o), has_aux=True))
        gradient, sols = f(sizes)
        np.testing.assert_array_equal(sols.status == Status.blow_up, [False, True, False])
        expected = scalar_blowup_time(A, C, sizes[1])
        np.testing.assert_allclose(sols.t_end, [1.0, expected, 1.0], rtol=2e-3)
        np.testing.assert_allclose(gradient, [slope(0.1), 0.0, slope(0.05)], rtol=1e-6)


def test_running_out_of_steps():
    sol = run(problems.moments, problems.START, t1=1.0, max_steps=3, rtol=1e-10, atol=1e-10, method=Tsit5())
    assert sol.outcome == "max_steps"
    assert 0 < float(sol.t_end) < 1
    np.testing.assert_array_equal(sol.valid, [True, False])
    assert bool(jnp.isfinite(sol.states.factor).all())
    with pytest.raises(NumericalError, match=r"(?s)status: max_steps.*raise max_steps") as info:
        sol.raise_if_failed()
    assert info.value.status == "max_steps"


def test_running_out_of_steps_in_one_layer_ends_the_run():
    """The first layer turns fast and needs many steps; the second, which rests, must not report success."""
    turn = np.array([[0.0, 80.0], [-80.0, 0.0]])
    flow = MomentFlow(Piecewise(A=np.stack([turn, 0 * turn]), t1=2.0))
    start = Gaussian(jnp.asarray([1.0, 0.0]), jnp.eye(2))
    sol = run(flow, start, t1=2.0, max_steps=10, rtol=1e-10, atol=1e-10, save_at=[0.0, 1.0, 1.5, 2.0])
    assert sol.outcome == "max_steps"
    t = float(sol.t_end)
    assert 0 < t < 1
    np.testing.assert_array_equal(sol.valid, [True, False, False, False])
    np.testing.assert_allclose(sol.final.mean, [np.cos(80 * t), -np.sin(80 * t)], atol=1e-6)


def test_no_longer_finite():
    huge = MomentFlow(Constant(A=1e80 * np.eye(3)))
    sol = run(huge, problems.START, t1=1.0, dt=0.5, observe=moments)
    assert sol.outcome == "nonfinite"
    assert float(sol.t_end) == 0.0
    np.testing.assert_array_equal(sol.final.factor, problems.START.factor)
    with pytest.raises(NumericalError, match=r"(?s)stopped at t = 0: .*nonfinite.*shorten the step"):
        sol.raise_if_failed()


def poisoned(t):
    """A layer that is NaN from t = ½ on."""
    return make_layer(A=jnp.where(t < 0.5, 1.0, jnp.nan) * jnp.eye(3))


@pytest.mark.parametrize("options", [{"dt": 0.1, "method": Euler()}, {"max_steps": 200}], ids=["fixed", "adaptive"])
def test_weights_that_are_nan_end_the_run_with_finite_states(options):
    sol = run(MomentFlow(Function(poisoned)), problems.START, t1=1.0, save_at=[0.2, 0.4, 0.9], **options)
    assert sol.outcome in ("nonfinite", "max_steps")
    assert float(sol.t_end) == pytest.approx(0.5, abs=0.1001)
    np.testing.assert_array_equal(sol.valid, [True, True, False])
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((sol.states, sol.final)))
    with pytest.raises(NumericalError):
        sol.raise_if_failed()
