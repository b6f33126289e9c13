"""ReLU feed-forward: the bound on the distance to the Gaussian, and the slope with which it is really left."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from compiled import run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import expm
from scipy.sparse.linalg import spsolve
from scipy.special import ndtri
from scipy.stats import norm

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, linear, negative_part, relu_bound, relu_bound_slope, relu_true_slope
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud, gauss_hermite
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Constant

A = np.array([[0.6, 1.1], [-0.9, 0.4]])
b = np.array([0.3, -0.2])
START = Gaussian(jnp.asarray([0.2, -0.3]), jnp.asarray([[0.9, 0.0], [0.3, 0.6]]))
BOUND, TRUE = 1.10784850536767, 0.93170100
bound = jax.jit(relu_bound)
true_slope = eqx.filter_jit(relu_true_slope)


@pytest.mark.parametrize("z", [-40.0, -1.0, 0.0, 1.0, 2.999, 3.001, 6.0, 15.0, 30.0])
def test_the_mean_square_of_the_negative_part(z):
    """s² ∫₀^∞ v² φ(v + z) dv, with φ(z) taken out so that the integral keeps its digits."""
    exact = (
        z**2 + 1 if z < -10 else quad(lambda v: v**2 * np.exp(-v * v / 2 - v * z), 0, 30, epsrel=1e-13, limit=200)[0]
    )
    exact *= 1 if z < -10 else norm.pdf(z)
    np.testing.assert_allclose(negative_part(jnp.asarray(2 * z), jnp.asarray(2.0)), 4 * exact, rtol=1e-12)


def test_the_negative_part_at_its_ends():
    np.testing.assert_array_equal(negative_part(jnp.asarray([-3.0, 3.0]), jnp.zeros(2)), [9.0, 0.0])
    far = jax.jit(negative_part)(jnp.linspace(-50, 50, 1001), jnp.ones(1001))
    assert (far >= 0).all()
    assert (jnp.diff(far) <= 0).all()
    slope = jax.jit(jax.vmap(jax.grad(negative_part, (0, 1))))(
        jnp.asarray([1.0, 5.0, 1.0]), jnp.asarray([0.5, 1.0, 0.0])
    )
    part = jax.jit(negative_part)
    for i, (m, s) in enumerate([(1.0, 0.5), (5.0, 1.0)]):
        by_m = oracles.derivative(lambda m, s=s: float(part(jnp.asarray(m), jnp.asarray(s))), m, step=1e-2)
        by_s = oracles.derivative(lambda s, m=m: float(part(jnp.asarray(m), jnp.asarray(s))), s, step=1e-2)
        np.testing.assert_allclose((slope[0][i], slope[1][i]), (by_m, by_s), rtol=1e-6)
    assert jnp.isfinite(jnp.stack(slope)).all()


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2), st.floats(0.1, 2), st.floats(0.01, 2))
def test_the_bound_in_one_dimension_against_the_exact_distance(a, c, m, s, t):
    """Tokens with u₀ = ax + b < 0 rest, the others follow the Gaussian's map, and both maps increase: W₂ is exactly
    |(e^{at} − 1)/a|‖u₀^-‖; the bound is t e^{at}‖u₀^-‖ for a > 0 and sinh(|a|t)/|a| ‖u₀^-‖ for a < 0."""
    start = Gaussian(jnp.asarray([m]), jnp.asarray([[s]]))
    size = np.sqrt(quad(lambda z: min(a * (m + s * z) + c, 0) ** 2 * norm.pdf(z), -12, 12, points=kinks(a, c, m, s))[0])
    exact = size * (t if abs(a) < 1e-9 else np.expm1(a * t) / a)
    closed = size * (t * np.exp(a * t) if a > -1e-9 else np.sinh(-a * t) / -a)
    found = float(bound(start, jnp.asarray([[a]]), jnp.asarray([c]), t))
    np.testing.assert_allclose(found, closed, rtol=1e-6, atol=1e-12)
    assert exact <= found * (1 + 1e-6) + 1e-12


def kinks(a, c, m, s):
    return [-(a * m + c) / (a * s)] if abs(a * m + c) < 12 * abs(a * s) else None


@pytest.mark.parametrize(("a", "c", "m"), [(0.8, -0.3, 0.2), (-0.7, 0.4, 0.5)])
def test_relu_tokens_in_one_dimension_stay_within_the_bound(a, c, m):
    """20 000 quantiles, coupled in order, against the quantiles of the Gaussian."""
    z = jnp.asarray(ndtri((np.arange(20_000) + 0.5) / 20_000))[:, None]
    start = Gaussian(jnp.asarray([m]), jnp.asarray([[0.7]]))
    flow = AttentionFlow(Constant(A=[[a]], b=[c]), geometry=Euclidean(), relu=True)
    sol = run(flow, Cloud(m + 0.7 * z), t1=1.0, dt=0.05, save_at=[0.01, 1.0])
    args = (start, jnp.asarray([[a]]), jnp.asarray([c]))
    slope = relu_bound_slope(*args)
    for t, end in zip([0.01, 1.0], sol.states.points):
        calm = linear(*args, t)
        distance = jnp.sqrt(jnp.mean((jnp.sort(end[:, 0]) - (calm.mean[0] + z[:, 0] * calm.factor[0, 0])) ** 2))
        np.testing.assert_allclose(distance, jnp.expm1(a * t) / a * slope, rtol=2e-3)
        assert distance <= bound(*args, t) * (1 + 2e-3)
    np.testing.assert_allclose(true_slope(*args), slope, rtol=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_relu_tokens_in_the_plane_stay_within_the_bound(seed):
    """The coupling that moves both from the same tokens is at least W₂, and already within the bound."""
    A, b = oracles.general(2, 2, seed=seed), oracles.general(2, seed=seed + 10)
    mean, L = oracles.general(2, seed=seed + 20), oracles.general(2, 2, seed=seed + 30)
    start = Gaussian(jnp.asarray(mean), jnp.asarray(L))
    cloud = gauss_hermite(start, nodes=40)
    flow = AttentionFlow(Constant(A=A, b=b), geometry=Euclidean(), relu=True)
    sol = run(flow, cloud, t1=1.0, dt=0.05, save_at=[0.1, 1.0])
    generator = np.block([[A, b[:, None]], [np.zeros((1, 3))]])
    for t, bent in zip([0.1, 1.0], sol.states.points):
        E = expm(t * generator)
        calm = np.asarray(cloud.points) @ E[:2, :2].T + E[:2, 2]
        gap = np.sqrt(np.sum(np.asarray(cloud.weights)[:, None] * (np.asarray(bent) - calm) ** 2))
        assert gap <= bound(start, jnp.asarray(A), jnp.asarray(b), t) * (1 + 5e-3)


def test_quadrature_of_the_bound_and_its_slope_at_zero():
    args = (START, jnp.asarray(A), jnp.asarray(b))
    np.testing.assert_allclose(bound(*args, 2.0), relu_bound(*args, 2.0, nodes=80), rtol=1e-12)
    np.testing.assert_allclose(bound(*args, 1e-6) / 1e-6, relu_bound_slope(*args), rtol=1e-5)
    np.testing.assert_allclose(relu_bound_slope(*args), BOUND, rtol=1e-12)
    assert bound(*args, 0.0) == 0
    line = Gaussian(START.mean, START.factor[:, :1])
    cloud = gauss_hermite(line, nodes=200)
    norm_ = jnp.sqrt(jnp.sum(cloud.weights[:, None] * jnp.minimum(cloud.points @ A.T + b[None], 0) ** 2))
    np.testing.assert_allclose(relu_bound_slope(line, *args[1:]), norm_, rtol=1e-3)


def by_finite_volumes(mean, L, A, b, cells):
    """‖∇φ‖ for div(ρ(∇φ − w)) = 0, w = (Ax + b)^-, on a box of 6 standard deviations: faces carry fluxes."""
    S = L @ L.T
    std, P = np.sqrt(np.diag(S)), np.linalg.inv(S)
    h = 12 * std / cells
    centres = [mean[i] + (np.arange(cells) + 0.5 - cells / 2) * h[i] for i in range(2)]
    faces = [(c[1:] + c[:-1]) / 2 for c in centres]
    one = sp.identity(cells)
    D = [sp.diags([-np.ones(cells - 1), np.ones(cells - 1)], [0, 1], (cells - 1, cells)) / h[i] for i in range(2)]
    G = [sp.kron(D[0], one), sp.kron(one, D[1])]
    left, right = 0, 0
    kept = []
    for i, axes in enumerate([(faces[0], centres[1]), (centres[0], faces[1])]):
        x = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        y = x - mean
        rho = np.exp(-0.5 * np.einsum("ni,ij,nj->n", y, P, y)) * h.prod() / (2 * np.pi * np.sqrt(np.linalg.det(S)))
        w = np.maximum(-(x @ A.T + b)[:, i], 0)
        left, right = left + G[i].T @ sp.diags(rho) @ G[i], right + G[i].T @ (rho * w)
        kept.append(rho)
    phi = np.append(0, spsolve(sp.csc_matrix(left)[1:, 1:], right[1:]))
    return np.sqrt(sum(rho @ (g @ phi) ** 2 for rho, g in zip(kept, G)))


def test_true_and_bound_slope_differ_for_a_matrix_that_is_not_diagonal():
    """1.107849 for the bound, 0.931701 in truth: by Hermite series and by a finite-volume Poisson solve."""
    args = (START, jnp.asarray(A), jnp.asarray(b))
    found = [float(true_slope(*args, degree=N)) for N in (10, 20, 40)]
    errors = np.abs(np.array(found) - TRUE)
    assert (errors < [1e-4, 2e-5, 4e-6]).all()
    coarse, fine = (by_finite_volumes(np.asarray(START.mean), np.asarray(START.factor), A, b, n) for n in (60, 120))
    np.testing.assert_allclose((4 * fine - coarse) / 3, TRUE, rtol=5e-4)
    assert abs(fine / BOUND - 1) > 0.1


def test_slopes_agree_where_the_negative_part_is_a_gradient():
    """Diagonal A with diagonal Σ₀: each component depends on its own coordinate alone."""
    args = (Gaussian(START.mean, jnp.diag(jnp.asarray([0.9, 0.4]))), jnp.diag(jnp.asarray([0.6, -1.2])), jnp.asarray(b))
    np.testing.assert_allclose(true_slope(*args), relu_bound_slope(*args), rtol=1e-12)
    only_b = (START, jnp.zeros((2, 2)), jnp.asarray(b))
    np.testing.assert_allclose(true_slope(*only_b), 0.2, rtol=1e-13)
    np.testing.assert_allclose(relu_bound_slope(*only_b), 0.2, rtol=1e-13)


def test_independent_blocks_add_in_squares():
    """A plane and a line that do not see each other, the coordinates shuffled."""
    order = np.array([2, 0, 1])
    blocks, L = np.zeros((3, 3)), np.zeros((3, 3))
    blocks[:2, :2], blocks[2, 2], L[:2, :2], L[2, 2] = A, 0.7, np.asarray(START.factor), 0.5
    mean, c = np.append(START.mean, 0.1), np.append(b, -0.2)
    whole = Gaussian(jnp.asarray(mean[order]), jnp.asarray(L[order]))
    found = true_slope(whole, jnp.asarray(blocks[np.ix_(order, order)]), jnp.asarray(c[order]), degree=20)
    line = relu_bound_slope(
        Gaussian(jnp.asarray([0.1]), jnp.asarray([[0.5]])), jnp.asarray([[0.7]]), jnp.asarray([-0.2])
    )
    np.testing.assert_allclose(found**2, TRUE**2 + line**2, rtol=1e-4)


@pytest.mark.parametrize("geometry", [Euclidean(), Sphere()])
def test_relu_acts_on_the_feed_forward_part_alone(geometry):
    x = geometry.retract(jnp.asarray(oracles.general(6, 2, seed=1)))
    B, V = oracles.general(1, 2, 2, seed=2), oracles.general(1, 2, 2, seed=3)
    flow = AttentionFlow(Constant(A=A, b=b, B=B, V=V), geometry=geometry, relu=True)
    found, _ = flow.field(0.0, Cloud(x), flow.weights.at(0.0))
    attention = oracles.velocity(np.asarray(x), np.full(6, 1 / 6), [(1.0, B[0], V[0])], sphere=False)
    expected = geometry.project(x, jnp.asarray(np.maximum(np.asarray(x) @ A.T + b, 0) + attention))
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: AttentionFlow(Constant(B=A, V=A), geometry=Euclidean(), relu=True), "relu: needs a feed-forward part"),
        (lambda: relu_bound_slope(START, jnp.eye(3), jnp.zeros(3)), "A: has the wrong shape"),
        (
            lambda: relu_true_slope(Gaussian(START.mean, START.factor[:, :1]), jnp.eye(2), jnp.zeros(2)),
            "start: must have full rank",
        ),
        (lambda: relu_true_slope(START, jnp.eye(2), jnp.zeros(2), degree=2000), "degree: gives an unusable number"),
        (lambda: relu_true_slope(START, jnp.eye(2), jnp.zeros(2), degree=0), "degree: gives an unusable number"),
    ],
)
def test_refusals(make, part):
    with pytest.raises(InputError, match=part):
        make()
