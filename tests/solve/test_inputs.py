"""Every option that does not apply is an error that says what does."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import problems
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, MomentFlow, moments
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance
from jaxflow.solve import RK4, Euler, Tsit5, solve
from jaxflow.weights import Constant, OrnsteinUhlenbeck

KEY = jax.random.key(0)
TIED = Constant(D=oracles.symmetric(2, 3))
TOKENS = AttentionFlow(TIED, direction="descend")
NOISY = AttentionFlow(OrnsteinUhlenbeck(initial=oracles.symmetric(1, 3), mean=np.eye(3)), direction="descend")
FREE = AttentionFlow(Constant(B=problems.B, V=problems.V), geometry=Euclidean())
SINGLE = MomentFlow(Constant(A=jnp.eye(3, dtype=jnp.float32)))
SINGLE_START = Gaussian(jnp.zeros(3, jnp.float32), jnp.eye(3, dtype=jnp.float32))
M, S = problems.moments, problems.START
L = problems.layered
X = problems.TOKENS


@pytest.mark.parametrize(
    ("flow", "state", "options", "parts"),
    [
        (M, S, {"t1": 0.0}, ["t1: must lie after t0"]),
        (M, S, {"t1": np.inf}, ["t1: must lie after t0"]),
        (M, S, {"t1": 1.0, "t0": 2.0}, ["t1: must lie after t0", "t0=2.0, t1=1.0"]),
        (M, S, {"t1": 1.0, "dt": 0.0}, ["dt: must be a step within the run", "0 < dt ≤ 1"]),
        (M, S, {"t1": 1.0, "dt": 2.0}, ["dt: must be a step within the run"]),
        (M, S, {"t1": 1.0, "method": RK4()}, ["dt: is needed by RK4()"]),
        (M, S, {"t1": 1.0, "dt": 0.1, "rtol": 1e-6}, ["rtol: does not apply to RK4()", "choose Tsit5()"]),
        (M, S, {"t1": 1.0, "dt": 0.1, "atol": 1e-6}, ["atol: does not apply to RK4()"]),
        (M, S, {"t1": 1.0, "dt": 0.1, "method": Tsit5()}, ["dt: does not apply to Tsit5()", "choose RK4()"]),
        (M, S, {"t1": 1.0, "save_every": 2}, ["save_every: does not apply to Tsit5()", "save_at"]),
        (M, S, {"t1": 1.0, "rtol": 0.0}, ["rtol: must be positive"]),
        (M, S, {"t1": 1.0, "atol": -1.0}, ["atol: must be positive"]),
        (M, S, {"t1": 1.0, "dt": 0.1, "save_every": 0}, ["save_every: must be at least 1"]),
        (M, S, {"t1": 1.0, "dt": 0.1, "save_every": 1, "save_at": [1.0]}, ["exclude each other"]),
        (M, S, {"t1": 1.0, "save_at": [0.5, 0.2]}, ["save_at: must be increasing times", "in [0, 1]"]),
        (M, S, {"t1": 1.0, "save_at": [0.5, 1.2]}, ["save_at: must be increasing times"]),
        (M, S, {"t1": 1.0, "save_at": []}, ["save_at: must be increasing times"]),
        (M, S, {"t1": 1.0, "key": KEY}, ["key: does not apply", "nothing here is random"]),
        (NOISY, X, {"t1": 1.0, "dt": 0.1}, ["key: is needed"]),
        (NOISY, X, {"t1": 1.0, "key": KEY}, ["dt: is needed by Euler()"]),
        (
            NOISY,
            X,
            {"t1": 1.0, "dt": 0.1, "key": KEY, "method": RK4()},
            ["random weights", "weights.sample(key, ts)"],
        ),
        (NOISY, X, {"t1": 1.0, "key": KEY, "method": Tsit5()}, ["method: does not apply to random weights"]),
        (L, S, {"t1": 1.5}, ["t0, t1: run beyond the schedule", "within [0, 1]"]),
        (L, S, {"t1": 0.5, "t0": -0.1}, ["t0, t1: run beyond the schedule"]),
        (M, X, {"t1": 1.0}, ["state: must be a Gaussian", "got: Cloud"]),
        (TOKENS, S, {"t1": 1.0}, ["state: must be a Cloud of tokens", "got: Gaussian"]),
        (M, Gaussian(jnp.zeros(2), jnp.eye(2)), {"t1": 1.0}, ["lives in another dimension", "d = 3"]),
        (TOKENS, Cloud(jnp.eye(2)), {"t1": 1.0}, ["live in another dimension", "expected: (n, 3)"]),
        (
            TOKENS,
            Cloud(2 * X.points),
            {"t1": 1.0},
            ["not on the sphere", "norm off 1 by 1.00e+00", "Euclidean()"],
        ),
        (
            M,
            jax.tree.map(lambda x: jnp.stack([x, x]), S),
            {"t1": 1.0},
            ["must be a single Gaussian", "jax.vmap"],
        ),
        (TOKENS, Cloud(jnp.stack([X.points] * 2)), {"t1": 1.0}, ["must be a single cloud", "jax.vmap"]),
        (SINGLE, S, {"t1": 1.0}, ["mixes precisions", "state float64", "weights float32"]),
        (SINGLE, SINGLE_START, {"t1": 2000.0}, ["too long for adaptive steps in float32", "at most 1000"]),
        (M, S, {"t1": 1.0, "observe": balance}, ["observe: watches flows of tokens", "jf.gaussian.moments"]),
        (
            TOKENS,
            X,
            {"t1": 1.0, "observe": moments},
            ["observe: watches moment flows", "jf.particles.balance"],
        ),
        (FREE, X, {"t1": 1.0, "observe": balance}, ["weights.B: is not symmetric"]),
        (
            AttentionFlow(Constant(A=problems.A)),
            X,
            {"t1": 1.0, "observe": balance},
            ["observe: needs heads"],
        ),
        (
            AttentionFlow(TIED, direction="descend", causal=True),
            X,
            {"t1": 1.0, "observe": balance},
            ["observe: needs every token to see every other", "causal"],
        ),
    ],
)
def test_refusals_of_solve(flow, state, options, parts):
    with pytest.raises(InputError) as info:
        solve(flow, state, **options)
    for part in parts:
        assert part in str(info.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "direction: is needed for tied heads"),
        (
            {"direction": "descend", "law": "steepest", "weights": FREE.weights},
            "direction: does not apply to free heads",
        ),
        ({"law": "steepest", "weights": FREE.weights}, "law: needs tied heads"),
    ],
)
def test_refusals_of_a_flow(arguments, part):
    with pytest.raises(InputError, match=part):
        AttentionFlow(**{"weights": TIED, **arguments})
    with pytest.raises(InputError, match="direction"):
        MomentFlow(TIED)


@pytest.mark.slow
def test_defaults_are_those_of_the_documentation():
    """With dt Runge–Kutta, without it Tsit5, for random weights Euler."""
    a, b = run(M, S, t1=0.2, dt=0.1), run(M, S, t1=0.2, dt=0.1, method=RK4())
    np.testing.assert_array_equal(a.final.factor, b.final.factor)
    a, b = run(M, S, t1=0.2), run(M, S, t1=0.2, method=Tsit5(), rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(a.final.factor, b.final.factor)
    a, b = (run(NOISY, X, t1=0.2, dt=0.1, key=KEY, **o) for o in ({}, {"method": Euler()}))
    np.testing.assert_array_equal(a.final.points, b.final.points)
