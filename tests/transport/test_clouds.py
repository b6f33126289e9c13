"""Distances between clouds: closed forms, a metric's rules, derivatives, refusals."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance_nd

from jaxflow.errors import InputError, JaxflowError, NumericalError
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud, Gaussian, sample
from jaxflow.transport import (
    energy_distance,
    sinkhorn_divergence,
    sliced_wasserstein,
    sliced_wasserstein_squared,
    wasserstein_clouds,
    wasserstein_squared,
)
from jaxflow.transport.assignment import assign
from jaxflow.transport.simplex import installed, network_simplex
from jaxflow.transport.sliced import _lines

SHIFT = np.array([1.0, -2.0, 0.5])


def cloud(n, d=3, seed=0, weighted=True, shift=0.0):
    points = jnp.asarray(oracles.general(n, d, seed=seed) + shift)
    return Cloud.from_weights(points, jnp.asarray(oracles.weights(n, seed=seed))) if weighted else Cloud(points)


def moved(x, s):
    return Cloud(x.points + jnp.asarray(s)[None], x.log_weights)


compiled_sinkhorn = jax.jit(lambda x, y: sinkhorn_divergence(x, y, epsilon=2.0, threshold=1e-9))


def sinkhorn(x, y):
    pytest.importorskip("ott", reason="needs ott-jax: pip install 'jaxflow[ot]'")
    return compiled_sinkhorn(x, y)


sliced_squared, sliced, energies = (
    jax.jit(distance) for distance in (sliced_wasserstein_squared, sliced_wasserstein, energy_distance)
)
SMOOTH = [sliced_squared, energies, sinkhorn]
EVERY = [sliced, *SMOOTH, wasserstein_clouds]
NAMES = ["sliced", "sliced_squared", "energy", "sinkhorn", "exact"]


# --- sliced -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "key", "weighted"), [(1, None, True), (2, None, False), (2, 3, True), (3, 3, False), (5, None, True)]
)
def test_sliced_w2_of_translates_is_the_squared_shift_over_d(d, key, weighted):
    x, s = cloud(7, d, weighted=weighted), oracles.general(d, seed=9)
    key = None if key is None else jax.random.key(key)
    found = jax.jit(sliced_wasserstein_squared)(x, moved(x, s), key=key)
    np.testing.assert_allclose(found, s @ s / d, rtol=1e-12)


def test_sliced_w2_on_the_line_is_the_integral_of_quantiles():
    """Weights ½, ½ at 0, 1 against ¼, ¾ at 0, 2: quantiles differ by 0 on [0, ¼], 2 on [¼, ½], 1 on [½, 1]."""
    x = Cloud.from_weights(jnp.array([[1.0], [0.0]]), jnp.array([0.5, 0.5]))
    y = Cloud.from_weights(jnp.array([[0.0], [2.0]]), jnp.array([0.25, 0.75]))
    np.testing.assert_allclose(sliced_wasserstein_squared(x, y), 0.25 * 4 + 0.5, rtol=1e-14)


def test_sliced_w2_does_not_see_how_a_measure_is_written():
    """Equal weights as None or as numbers, and a point split in two."""
    x, y = cloud(6, weighted=False), cloud(6, seed=1, weighted=False)
    written = Cloud(x.points, x.log_w)
    split = Cloud.from_weights(jnp.concatenate([x.points, x.points[:1]]), jnp.array([0.4, 1, 1, 1, 1, 1, 0.6]))
    expected = sliced_squared(x, y)
    for same in (written, split):
        np.testing.assert_allclose(sliced_squared(same, y), expected, rtol=1e-12)
        # Rounding of the cumulative weights leaves intervals of length 1e-16.
        assert float(sliced_squared(same, x)) < 1e-14


def test_sliced_w2_of_gaussian_samples_approaches_the_formula():
    """The shadows of N(μ, Σ) are N(⟨μ,θ⟩, θᵀΣθ): SW₂² is the mean over the circle of (Δ⟨μ,θ⟩)² + (Δσ_θ)²."""
    first = Gaussian(jnp.array([0.0, 1.0]), jnp.array([[1.0, 0.0], [0.5, 0.4]]))
    second = Gaussian(jnp.array([1.5, 0.0]), jnp.array([[0.3, 0.0], [-0.2, 0.9]]))
    angle = np.pi * np.arange(720) / 720
    theta = np.stack([np.cos(angle), np.sin(angle)], 1)
    means, deviations = ([theta @ g.mean for g in (first, second)], [])
    for g in (first, second):
        deviations.append(np.sqrt(np.einsum("ki,ij,kj->k", theta, g.covariance, theta)))
    expected = np.mean((means[0] - means[1]) ** 2 + (deviations[0] - deviations[1]) ** 2)
    n = 20_000
    x, y = sample(first, jax.random.key(0), n=n), sample(second, jax.random.key(1), n=n)
    # Means of n samples miss by about n^{-1/2}, and the square by 2·SW₂·n^{-1/2} = 0.02.
    np.testing.assert_allclose(sliced_wasserstein_squared(x, y), expected, atol=0.03)
    assert expected < wasserstein_squared(first, second) / 2 + 1e-12


@pytest.mark.parametrize(("d", "key"), [(2, None), (2, 5), (3, None), (4, 5)])
def test_lines_are_orthonormal_frames_spread_evenly(d, key):
    """For θ uniform on the sphere E ⟨θ, u⟩⁴ = 3/(d(d+2)), with a variance below E ⟨θ, u⟩⁸ = 105/(d(d+2)(d+4)(d+6))."""
    lines = _lines(120 * d, d, None if key is None else jax.random.key(key))
    np.testing.assert_allclose(np.linalg.norm(lines, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(lines.T @ lines, 120 * np.eye(d), atol=1e-10)
    fourth = np.mean((lines @ oracles.unit_rows(1, d, seed=3)[0]) ** 4)
    assert abs(fourth - 3 / (d * (d + 2))) < 5 * np.sqrt(105 / (d * (d + 2) * (d + 4) * (d + 6)) / (120 * d))


# --- energy distance ----------------------------------------------------------------------------------------------


def test_energy_distance_of_two_diracs_is_twice_their_distance():
    x, y = Cloud(jnp.zeros((1, 3))), Cloud(jnp.array([[2.0, -1.0, 2.0]]))
    np.testing.assert_allclose(energy_distance(x, y), 6.0, rtol=1e-15)


@pytest.mark.parametrize("block", [None, 2])
def test_energy_distance_against_the_double_sum(block):
    x, y = cloud(7), cloud(5, seed=1)
    (X, w), (Y, v) = ((np.asarray(c.points), np.asarray(c.weights)) for c in (x, y))
    expected = 2 * w @ cdist(X, Y) @ v - w @ cdist(X, X) @ w - v @ cdist(Y, Y) @ v
    np.testing.assert_allclose(energy_distance(x, y, block=block), expected, rtol=1e-13)


def test_energy_distance_of_large_clouds_takes_little_memory_in_its_gradient():
    """All pairs of two clouds of 20 000 would take 20 GB."""

    def distance(points):
        return energy_distance(Cloud(points), Cloud(points[::-1] + 1))

    shape = jax.ShapeDtypeStruct((20_000, 3), jnp.float64)
    memory = jax.jit(jax.grad(distance)).lower(shape).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**26


# --- what all of them share -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", EVERY, ids=NAMES)
def test_distances_are_symmetric_positive_and_zero_on_the_diagonal(distance):
    x, y = cloud(6), cloud(5, seed=1)
    assert float(distance(x, y)) > 0.01
    np.testing.assert_allclose(distance(y, x), distance(x, y), rtol=1e-9)
    np.testing.assert_allclose(distance(x, x), 0, atol=1e-12)


@pytest.mark.parametrize("distance", [sliced, lambda x, y: energies(x, y) ** 0.5, wasserstein_clouds])
def test_the_triangle_inequality(distance):
    x, y, z = (cloud(6, seed=seed, shift=seed) for seed in range(3))
    assert float(distance(x, z)) <= float(distance(x, y)) + float(distance(y, z))


@pytest.mark.parametrize("distance", SMOOTH, ids=NAMES[1:4])
def test_gradients_in_points_and_weights_against_differences(distance):
    x, y = cloud(6), cloud(5, seed=1)
    E, e = jnp.asarray(oracles.general(6, 3, seed=7)), jnp.asarray(oracles.general(6, seed=8))

    def along(t):
        w = x.weights * jnp.exp(t * e)
        return distance(Cloud(x.points + t * E, jnp.log(w / w.sum())), y)

    along = jax.jit(along)
    np.testing.assert_allclose(jax.grad(along)(0.0), oracles.derivative(along, 0.0, step=1e-4), rtol=1e-6)


@pytest.mark.parametrize("distance", EVERY[:4], ids=NAMES[:4])
def test_gradients_are_finite_where_clouds_and_points_coincide(distance):
    x = Cloud(jnp.zeros((3, 3)).at[2].set(1.0))
    gradient = jax.grad(lambda points: distance(Cloud(points), x))(x.points)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("distance", SMOOTH, ids=NAMES[1:4])
def test_distances_work_under_jit_and_vmap(distance):
    x, ys = cloud(6), jnp.asarray(oracles.general(2, 5, 3, seed=2))
    v = cloud(5, seed=1).log_weights
    together = jax.jit(jax.vmap(lambda y: distance(x, Cloud(y, v))))(ys)
    np.testing.assert_allclose(together, [float(distance(x, Cloud(y, v))) for y in ys], rtol=1e-9)


def test_the_sinkhorn_divergence_of_translates_is_the_squared_shift():
    """The plan between translates is that of a cloud with itself, moved: every ε cancels."""
    x = cloud(6)
    np.testing.assert_allclose(sinkhorn(x, moved(x, SHIFT)), SHIFT @ SHIFT, rtol=1e-9)


@pytest.mark.slow
def test_the_sinkhorn_divergence_approaches_w2_squared():
    pytest.importorskip("ott", reason="needs ott-jax: pip install 'jaxflow[ot]'")
    x, y = cloud(6), cloud(5, seed=1, shift=1.0)
    exact = wasserstein_clouds(x, y) ** 2
    compiled = jax.jit(lambda epsilon: sinkhorn_divergence(x, y, epsilon=epsilon, max_iterations=50_000))
    gaps = [abs(float(compiled(epsilon)) - exact) for epsilon in (0.5, 0.05)]
    assert gaps[1] < 0.02 * exact
    assert gaps[1] < gaps[0]
    with pytest.raises(NumericalError, match="raise epsilon, threshold or max_iterations"):
        sinkhorn_divergence(x, y, epsilon=0.01, max_iterations=10)


def test_a_missing_ott_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ott.geometry.pointcloud", None)
    with pytest.raises(JaxflowError, match=r"pip install 'jaxflow\[ot\]'"):
        sinkhorn_divergence(cloud(3), cloud(3, seed=1), epsilon=0.5)


# --- exact ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["pot", "scipy"])
def engine(request, monkeypatch):
    """What solves the transport problem: POT where it is installed, SciPy where it is not."""
    if request.param == "pot":
        pytest.importorskip("ot", reason="needs POT: pip install 'jaxflow[ot]'")
    monkeypatch.setattr("jaxflow.transport.exact.installed", lambda: request.param == "pot")
    return request.param


@pytest.mark.parametrize("geometry", [Euclidean(), Sphere()])
def test_exact_w2_against_all_permutations(geometry, engine):
    x, y = (jnp.asarray(oracles.unit_rows(6, 3, seed=seed)) for seed in (1, 2))
    squares = np.asarray(jax.vmap(lambda p: jax.vmap(lambda q: geometry.distance(p, q))(y))(x)) ** 2
    best = min(squares[range(6), list(order)].mean() for order in itertools.permutations(range(6)))
    np.testing.assert_allclose(wasserstein_clouds(Cloud(x), Cloud(y), geometry=geometry), np.sqrt(best), rtol=1e-13)


def test_exact_w2_on_the_line_is_that_of_quantiles(engine):
    x, y = cloud(40, 1), cloud(30, 1, seed=1)
    np.testing.assert_allclose(wasserstein_clouds(x, y), sliced(x, y), rtol=1e-9)


@pytest.mark.parametrize("geometry", [Euclidean(), Sphere()])
def test_weights_that_are_multiples_are_points_repeated(geometry, engine):
    """k/40 at a point is k equal points (for SciPy a linear program and an assignment of 40)."""
    rng = np.random.default_rng(0)
    clouds, repeated = [], []
    for n in (9, 13):
        x = oracles.unit_rows(n, 3, seed=n)
        k = 1 + rng.multinomial(40 - n, np.full(n, 1 / n))
        clouds.append(Cloud.from_weights(jnp.asarray(x), jnp.asarray(k / 40)))
        repeated.append(Cloud(jnp.asarray(np.repeat(x, k, axis=0))))
    expected = wasserstein_clouds(*repeated, geometry=geometry)
    np.testing.assert_allclose(wasserstein_clouds(*clouds, geometry=geometry), expected, rtol=1e-9)


def test_the_linear_program_agrees_with_the_assignment_at_200_points(engine):
    """Equal weights but for rounding that sends them to SciPy's program, which columns join in several rounds."""
    x, y = cloud(200, weighted=False), cloud(200, seed=1, weighted=False)
    tilted = Cloud.from_weights(x.points, jnp.asarray(1 + 1e-10 * oracles.general(200, seed=5)))
    cost = cdist(x.points, y.points, "sqeuclidean")
    expected = np.sqrt(cost[linear_sum_assignment(cost)].mean())
    np.testing.assert_allclose(wasserstein_clouds(x, y), expected, rtol=1e-14)
    np.testing.assert_allclose(wasserstein_clouds(tilted, y), expected, rtol=1e-8)


@pytest.mark.parametrize("kind", ["space", "sorted line", "coincident"])
def test_assignment_from_the_potentials_of_a_sample_is_exact(kind):
    """600 points, two levels of samples; sorted or equal points make a sample that represents nothing. POT agrees."""
    x, y = oracles.general(600, 3, seed=1), oracles.general(600, 3, seed=2) + 0.5
    if kind == "sorted line":
        x, y = (np.sort(z[:, :1], axis=0) for z in (x, y))
    elif kind == "coincident":
        x, y = np.repeat(x[:2], 300, axis=0), np.repeat(y[:3], 200, axis=0)
    cost = cdist(x, y, "sqeuclidean")
    columns = assign(cost)
    assert sorted(columns) == list(range(600))
    expected = cost[linear_sum_assignment(cost)].sum()
    np.testing.assert_allclose(cost[np.arange(600), columns].sum(), expected, rtol=1e-12)
    if installed():
        w = np.full(600, 1 / 600)
        np.testing.assert_allclose(600 * np.sum(network_simplex(cost, w, w) * cost), expected, rtol=1e-12)


def test_the_network_simplex_says_when_it_gives_up(monkeypatch):
    pytest.importorskip("ot", reason="needs POT: pip install 'jaxflow[ot]'")
    monkeypatch.setattr("jaxflow.transport.simplex.PIVOTS", 3)
    with pytest.raises(NumericalError, match="the network simplex stopped"):
        wasserstein_clouds(cloud(30), cloud(40, seed=1))


def test_exact_w2_is_at_least_the_distance_of_means_and_scipys_w1(engine):
    x, y = cloud(15), cloud(12, seed=1, shift=0.7)
    found = wasserstein_clouds(x, y)
    first = wasserstein_distance_nd(x.points, y.points, x.weights, y.weights)
    assert np.linalg.norm(x.mean - y.mean) < first < found


def test_angles_are_longer_than_chords_and_quarter_turns_are_known():
    x = Cloud(jnp.asarray(np.eye(3)[:1]))
    y = Cloud(jnp.asarray(np.eye(3)[1:2]))
    np.testing.assert_allclose(wasserstein_clouds(x, y), np.sqrt(2), rtol=1e-15)
    np.testing.assert_allclose(wasserstein_clouds(x, y, geometry=Sphere()), np.pi / 2, rtol=1e-15)
    np.testing.assert_allclose(wasserstein_clouds(x, Cloud(-x.points), geometry=Sphere()), np.pi, rtol=1e-15)


# --- refusals -------------------------------------------------------------------------------------------------------


BAD = [
    (Cloud(jnp.zeros((3, 2))), "second.points", "another dimension"),
    (Cloud(jnp.array([[0.0, 0.0, jnp.nan]])), "second.points", "not finite"),
    (Cloud(jnp.zeros((2, 3)), jnp.log(jnp.array([0.5, 0.75]))), "second.log_weights", "another total weight"),
    (Cloud(jnp.zeros((2, 3)), jnp.array([0.0, jnp.nan])), "second.log_weights", "NaN"),
    (Cloud(jnp.zeros((2, 4, 3))), "second.state.points", "single cloud"),
    (Cloud(jnp.zeros((2, 3), jnp.float32)), "first, second", "mixes precisions"),
]


@pytest.mark.parametrize(
    "distance",
    [
        sliced_wasserstein,
        energy_distance,
        lambda x, y: sinkhorn_divergence(x, y, epsilon=1.0),
        wasserstein_clouds,
    ],
    ids=["sliced", "energy", "sinkhorn", "exact"],
)
@pytest.mark.parametrize(("second", "where", "words"), BAD, ids=[words for _, _, words in BAD])
def test_clouds_that_cannot_be_compared_are_refused(distance, second, where, words):
    with pytest.raises(InputError, match=words) as caught:
        distance(cloud(4), second)
    assert caught.value.where == where
    assert str(caught.value.got) or caught.value.fix


def test_numbers_out_of_range_are_refused(monkeypatch):
    x = cloud(4)
    with pytest.raises(InputError, match="directions"):
        sliced_wasserstein(x, x, directions=0)
    with pytest.raises(InputError, match="epsilon"):
        sinkhorn_divergence(x, x, epsilon=0.0)
    with pytest.raises(InputError, match="not on the sphere"):
        wasserstein_clouds(x, x, geometry=Sphere())
    with pytest.raises(InputError, match="too many points"):
        wasserstein_clouds(Cloud(jnp.zeros((6000, 2))), Cloud(jnp.zeros((6000, 2))))
    with pytest.raises(InputError, match="too many points"):
        wasserstein_clouds(Cloud(jnp.zeros((6000, 2))), Cloud(jnp.zeros((5000, 2))))
    monkeypatch.setattr("jaxflow.transport.exact.installed", lambda: False)
    with pytest.raises(InputError, match=r"pip install 'jaxflow\[ot\]'"):
        wasserstein_clouds(Cloud(jnp.zeros((3000, 2))), Cloud(jnp.zeros((2000, 2))))
    with pytest.raises(InputError, match="host"):
        jax.jit(lambda points: wasserstein_clouds(Cloud(points), x))(x.points)
