"""The order of every method, by regression, and the two back-ends against each other."""

import jax
import numpy as np
import oracles
import problems
import pytest
from compiled import run

from jaxflow.solve import RK4, Dopri8, Euler, Heun, Kvaerno5, Tsit5, make_grid


def final(flow, start, **options):
    sol = run(flow, start, t1=1.0, **options)
    assert sol.outcome == "done"
    assert bool(sol.valid.all())
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(sol.final)])


CASES = {
    "moments": (problems.moments, problems.START),
    "sphere": (problems.on_sphere, problems.TOKENS),
    "layers": (problems.layered, problems.START),
}


@pytest.fixture(scope="module")
def exact():
    return {name: final(*case, method=Dopri8(), rtol=1e-13, atol=1e-13) for name, case in CASES.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", [Euler(), Heun(), RK4()])
def test_fixed_methods_have_their_order(exact, case, method):
    """Also on the sphere, where retraction must not cost any, and across layers that dt does not divide."""
    flow, start = CASES[case]
    dts = [0.055, 0.0275, 0.01375] if case == "layers" else [1 / 10, 1 / 20, 1 / 40]
    errors = [np.abs(final(flow, start, method=method, dt=dt) - exact[case]).max() for dt in dts]
    steps = [1 / make_grid(0.0, 1.0, dt=dt, edges=flow.weights.edges).steps for dt in dts]
    assert abs(oracles.order(steps, errors) - method.order) < 0.25, errors


@pytest.mark.parametrize("case", CASES)
def test_runge_kutta_and_diffrax_agree(exact, case):
    np.testing.assert_allclose(final(*CASES[case], method=RK4(), dt=2e-3), exact[case], atol=1e-10)


@pytest.mark.parametrize("method", [Tsit5(), Dopri8(), pytest.param(Kvaerno5(), marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["moments", "sphere"])
def test_adaptive_methods_meet_their_tolerance(exact, case, method):
    rtol = 1e-6 if isinstance(method, Kvaerno5) else 1e-9
    found = final(*CASES[case], method=method, rtol=rtol, atol=rtol)
    error = np.abs(found - exact[case]).max()
    # Not below rtol/10⁴ either: that would mean the tolerance was not looked at.
    assert error < 100 * rtol
