"""W_{m,2}: paths of one particle by quadrature, of two by Clairaut's relation, splitting, and the rules of a metric.

All clouds end up as four particles on S² or two on S¹, so that programs are shared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.transport import name_of, wasserstein_clouds, weighted_distance
from jaxflow.transport.action import great_circles, path_action, smooth_moves
from jaxflow.weights import make_layer

HEADS = oracles.symmetric(2, 3, scale=0.9, seed=4)


def dirac(angle, d):
    return Cloud(jnp.asarray([[np.cos(angle), np.sin(angle), 0.0][:d]]))


def cloud(seed, n=4):
    return Cloud(jnp.asarray(oracles.unit_rows(n, 3, seed=seed)))


def multiples(*c, d):
    """θ_h = c_h I."""
    return jnp.asarray(np.array(c)[:, None, None] * np.eye(d))


def distance(start, target, heads, **knobs):
    """With as many particles per pair as make four on S², two on S¹."""
    d, n = start.points.shape[1], max(len(start.points), len(target.points))
    found = weighted_distance(start, target, jnp.asarray(heads), split=max(1, (4 if d == 3 else 2) // n), **knobs)
    assert name_of(found.status) == "optimal"
    assert found.lower * (1 - 1e-12) <= found.value <= found.upper * (1 + 1e-12)
    return found


def conformal(heads, a, b):
    """∫ √b̂ of one particle from angle a to b on the circle, b̂(x) = (mean_h e^{−⟨x, θ_h x⟩})^{-1}."""

    def root(t):
        x = np.array([np.cos(t), np.sin(t)])
        return np.mean([np.exp(-x @ D[:2, :2] @ x) for D in np.asarray(heads)]) ** -0.5

    return abs(quad(root, a, b, epsabs=1e-12)[0])


# --- one particle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "angle"), [(2, 2.5), (3, 2.5), (2, np.pi), (3, np.pi)])
def test_two_diracs_under_negative_multiples_of_the_identity_are_known_exactly(d, angle):
    """θ_h = −c_h I: b̂ = 1/mean e^{c_h} at a Dirac, and more once mass spreads. All pushes must come back together."""
    c = np.array([0.3, 1.1])
    found = distance(dirac(0.0, d), dirac(angle, d), multiples(*-c, d=d))
    np.testing.assert_allclose(found.value, angle / np.sqrt(np.mean(np.exp(c))), rtol=1e-10)
    np.testing.assert_allclose(found.wasserstein, angle, rtol=1e-14)
    np.testing.assert_allclose(found.upper, angle * np.exp(1.1 / 2), rtol=1e-14)
    np.testing.assert_allclose(found.lower, angle * np.exp(-1.1 / 2), rtol=1e-14)
    assert found.antipodal == (angle == np.pi)
    assert found.error < 1e-10


def test_a_dirac_on_the_circle_moves_by_the_conformal_length():
    """Moderate heads: no splitting pays, and the conformal length is met to the error that is reported."""
    heads = 0.5 * oracles.symmetric(2, 2, seed=1)
    found = distance(dirac(0.4, 2), dirac(2.6, 2), heads, steps=32)
    expected = conformal(heads, 0.4, 2.6)
    np.testing.assert_allclose(found.value, expected, rtol=1e-6)
    assert abs(found.value - expected) < found.error
    # Of the two arcs the smaller one is always the shorter one, because b̂(−x) = b̂(x).
    assert expected < conformal(heads, 0.4, 2.6 - 2 * np.pi)


def test_a_dirac_on_the_sphere_moves_by_no_more_than_the_conformal_length():
    found = distance(dirac(0.4, 3), dirac(2.6, 3), HEADS)
    great_circle = conformal(HEADS, 0.4, 2.6)
    assert 0.8 * great_circle < found.value < great_circle * (1 - 1e-3)


# --- splitting ------------------------------------------------------------------------------------------------------


def clairaut(R, angle, *, normal):
    """The action of two halves of a Dirac that part symmetrically, θ = R I: geodesics of m(v)(g(v) u'² + v'²) with the
    half-distance v and m = ½(e^R + e^{R cos 2v}); on the circle g = 1, across a great circle of the sphere g = cos² v.

    √m g u'/√(g u'² + v'²) = a is constant (Clairaut), and v turns at V with m(V)g(V) = a².
    """

    def m(v):
        return (np.exp(R) + np.exp(R * np.cos(2 * v))) / 2

    def g(v):
        return np.cos(v) ** 2 if normal else 1.0

    def integral(f, V):
        a = np.sqrt(m(V) * g(V))

        def integrand(t):
            v = V * np.sin(t)
            return f(v, a) * V * np.cos(t) / np.sqrt(m(v) * g(v) - a * a)

        return 2 * quad(integrand, 0, np.pi / 2 - 1e-7, epsabs=1e-11)[0]

    V = brentq(lambda V: integral(lambda v, a: a / np.sqrt(g(v)), V) - angle, 0.05, 1.4, xtol=1e-12)
    return integral(lambda v, a: m(v) * np.sqrt(g(v)), V) ** 2


def test_on_the_circle_a_dirac_splits_in_two_and_gains_what_clairauts_relation_says():
    """θ = 2.5 I, angle 2.5: one particle has the action e^{2.5} 2.5² = 76.1406, two have 72.8732."""
    found = distance(dirac(0.0, 2), dirac(2.5, 2), multiples(2.5, 2.5, d=2))
    np.testing.assert_allclose(found.actions[0], np.exp(2.5) * 2.5**2, rtol=1e-12)
    expected = clairaut(2.5, 2.5, normal=False)
    np.testing.assert_allclose(expected, 72.87322537, rtol=1e-7)
    np.testing.assert_allclose(found.value**2, expected, rtol=1e-6)
    # Both halves on the circle, apart halfway, and half of the mass each.
    middle = found.clouds.points[16]
    assert np.arccos(np.clip(middle[0] @ middle[1], -1, 1)) > 0.8
    np.testing.assert_allclose(jnp.exp(found.clouds.log_w), 0.5, rtol=1e-14)


def test_on_the_sphere_it_splits_sideways_and_ever_finer():
    """Two particles have 62.1241 there; four have less, and the error that is reported covers the next level."""
    found = distance(dirac(0.0, 3), dirac(2.5, 3), multiples(2.5, 2.5, d=3))
    one, two, four, finest = np.asarray(found.actions)
    np.testing.assert_allclose(one, np.exp(2.5) * 2.5**2, rtol=1e-12)
    np.testing.assert_allclose(two, clairaut(2.5, 2.5, normal=True), rtol=2e-4)
    assert four < 0.92 * two
    # Eight particles were found to have 53.376.
    assert np.sqrt(finest) - np.sqrt(53.376) < found.error


@pytest.mark.parametrize(("d", "sides"), [(2, 0), (3, 1)])
def test_splitting_pays_beyond_the_threshold_of_the_second_variation(d, sides):
    """Two halves ±ε sin πs apart gain where π² < R·angle² on the circle, (R + 1)·angle² on the sphere."""
    angle = 2.0
    critical = np.pi**2 / angle**2 - sides
    for factor, splits in ((0.95, False), (1.1, True)):
        R = factor * critical
        found = distance(dirac(0.0, d), dirac(angle, d), multiples(R, R, d=d))
        gain = 1 - found.value**2 / (np.exp(R) * angle**2)
        assert (gain > 1e-4) if splits else (abs(gain) < 1e-10), (factor, gain)


# --- a metric -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_it_is_a_metric_between_random_clouds(seed):
    heads = oracles.symmetric(2, 3, scale=0.5 + 0.3 * seed, seed=seed)
    a, b, c = (cloud(3 * seed + i) for i in range(3))
    ab, ba, bc, ac, aa = (distance(*pair, heads) for pair in ((a, b), (b, a), (b, c), (a, c), (a, a)))
    np.testing.assert_allclose(ba.value, ab.value, rtol=1e-9)
    assert ac.value <= ab.value + bc.value
    assert aa.value == aa.error == 0
    np.testing.assert_allclose(ab.wasserstein, wasserstein_clouds(a, b, geometry=Sphere()), rtol=1e-13)
    assert ab.value > 0.05


def test_the_path_is_a_geodesic_its_middle_is_half_way_and_its_speed_constant():
    found = distance(cloud(0), cloud(1), HEADS)
    middle = Cloud(found.clouds.points[16])
    halves = [distance(cloud(0), middle, HEADS).value, distance(middle, cloud(1), HEADS).value]
    np.testing.assert_allclose(halves, found.value / 2, rtol=2e-4)
    np.testing.assert_allclose(sum(halves), found.value, rtol=1e-6)


def test_the_action_of_the_path_by_loops():
    """The masses ¼ and the harmonic mean over heads, of masses ⅔ and ⅓, of Σ_j w_j e^{⟨D_h x_i, x_j⟩}, halfway on every
    step."""
    layer = make_layer(D=jnp.asarray(HEADS), mass=jnp.asarray([2.0, 1.0]))
    found = weighted_distance(cloud(0), cloud(1), layer, split=1)
    x = np.asarray(found.clouds.points)
    total = 0.0
    for k in range(32):
        middle = x[k] + x[k + 1]
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        m = np.array([oracles.tilt(D, middle, np.full(4, 0.25))[0] for D in HEADS])
        total += (
            32
            * 0.25
            * np.sum(np.arccos(np.sum(x[k] * x[k + 1], axis=1)) ** 2 / np.average(1 / m, axis=0, weights=[2, 1]))
        )
    np.testing.assert_allclose(found.actions[-1], total, rtol=1e-10)


def test_it_turns_with_the_sphere_and_sees_neither_order_nor_how_masses_are_written():
    a, b = cloud(0), cloud(1)
    expected = distance(a, b, HEADS).value
    Q = oracles.rotation(3)
    turned = [Cloud(c.points @ Q.T) for c in (a, b)]
    np.testing.assert_allclose(distance(*turned, Q @ HEADS @ Q.T).value, expected, rtol=1e-9)
    np.testing.assert_allclose(distance(Cloud(a.points[::-1]), b, HEADS).value, expected, rtol=1e-9)
    # One point of mass ½ is two points of mass ¼.
    twice = Cloud(a.points[jnp.asarray([0, 0, 1, 2])])
    once = Cloud.from_weights(a.points[:3], jnp.asarray([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(distance(once, b, HEADS).value, distance(twice, b, HEADS).value, rtol=1e-8)


# --- the discretisation ---------------------------------------------------------------------------------------------


def test_the_action_is_of_second_order_in_the_time_step():
    """A Dirac at uniform speed on the circle: ∫ b̂ angle² ds."""
    heads, angle = oracles.symmetric(2, 2, seed=3), 1.9

    def mobility(s):
        x = np.array([np.cos(angle * s), np.sin(angle * s)])
        return angle**2 / np.mean([np.exp(-x @ D @ x) for D in heads])

    exact, errors, steps = quad(mobility, 0, 1, epsabs=1e-13)[0], [], np.array([8, 16, 32])
    layer = make_layer(D=jnp.asarray(heads))
    for K in steps:
        ends = np.asarray(dirac(0.0, 2).points), np.asarray(dirac(angle, 2).points)
        path, _ = great_circles(*ends, np.ones((1, 2)), steps=int(K))
        errors.append(abs(float(jax.jit(path_action)(layer, jnp.asarray(path), jnp.zeros(1))) - exact))
    assert abs(oracles.order(1 / steps, errors) - 2) < 0.02, errors


def test_moves_have_unit_energy_in_every_coordinate():
    """Σ_k K |(Sz)^{k+1} − (Sz)^k|² = |z|², with fixed ends."""
    S = np.pad(smooth_moves(8), ((1, 1), (0, 0)))
    rates = np.diff(S, axis=0)
    np.testing.assert_allclose(8 * rates.T @ rates, np.eye(7), atol=1e-13)


def test_great_circles_also_between_antipodes():
    x, y = np.eye(3)[:1], np.array([[np.cos(2.0), np.sin(2.0), 0]])
    side = np.array([[0.3, 0.2, 0.9]])
    short, vague = great_circles(x, y, side, steps=4)
    assert not vague
    np.testing.assert_allclose(short[1, 0], [np.cos(0.5), np.sin(0.5), 0], atol=1e-15)
    np.testing.assert_array_equal(short[-1], y)
    half, vague = great_circles(x, -x, side, steps=2)
    assert vague
    np.testing.assert_allclose(half[1, 0], np.array([0, 0.2, 0.9]) / np.hypot(0.2, 0.9), atol=1e-15)


# --- words ----------------------------------------------------------------------------------------------------------


def test_a_search_that_ends_early_says_so():
    found = weighted_distance(cloud(0), cloud(1), jnp.asarray(HEADS), split=1, max_iterations=1)
    assert name_of(found.status) == "iterations"
    assert found.optimality > 1e-6
    assert found.iterations == 2


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"steps": 7}, "even"),
        ({"steps": 2}, "at least 4"),
        ({"split": 3}, "power of two"),
        ({"heads": make_layer(B=jnp.eye(3), V=jnp.eye(3))}, "tied"),
        ({"heads": make_layer(A=jnp.eye(3))}, "without attention"),
        ({"heads": jnp.eye(2)}, "do not fit"),
        ({"heads": jnp.asarray(oracles.general(3, 3))}, "not symmetric"),
        ({"heads": jnp.eye(3, dtype=jnp.float32)}, "precisions"),
        ({"target": Cloud(2 * cloud(0).points)}, "not on the sphere"),
        ({"target": Cloud(cloud(0).points, jnp.zeros(4))}, "another total weight"),
    ],
)
def test_what_has_no_distance_is_refused(knobs, words):
    arguments = {"start": cloud(0), "target": cloud(1), "heads": jnp.eye(3)} | knobs
    with pytest.raises(InputError, match=words):
        weighted_distance(**arguments)


def test_traced_clouds_are_refused():
    with pytest.raises(InputError, match="host"):
        jax.jit(lambda x: weighted_distance(Cloud(x), cloud(1), jnp.eye(3)).value)(cloud(0).points)
