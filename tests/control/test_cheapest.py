"""The cheapest controls that hit: closed forms, multipliers as derivatives, caps, and the word where none exist."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.linalg import null_space

from jaxflow.control import Problem, Stop, cheapest, geodesic, kinetic_energy
from jaxflow.control.cheapest import first_controls
from jaxflow.control.frame import frame_of
from jaxflow.control.ground import Ground
from jaxflow.control.newton import along_geodesic
from jaxflow.control.shoot import nodes_of, smooth_nodes
from jaxflow.control.tangent import newton_step, preconditioner, tangents
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.transport import wasserstein_squared
from jaxflow.weights import Piecewise


def gaussian(seed, d=2, r=None):
    rng = np.random.default_rng(seed)
    r = d if r is None else r
    mean, L = rng.normal(size=d), rng.normal(size=(d, r)) / np.sqrt(d) + 0.3 * np.eye(d, r)
    return Gaussian(jnp.asarray(mean), jnp.asarray(L))


def pair_of(d, i):
    """Problem i of dimension d in the set of the benchmarks."""
    rng = np.random.default_rng([18870, d, i])
    data = [x for _ in range(2) for x in (rng.normal(size=d), rng.normal(size=(d, d)) / np.sqrt(d) + 0.2 * np.eye(d))]
    return Gaussian(*map(jnp.asarray, data[:2])), Gaussian(*map(jnp.asarray, data[2:]))


def landing(plan, start, edges):
    """Where SciPy says the layers lead at every edge but the first."""
    layers = plan.weights.layers

    def layer_at(t):
        k = min(int(np.searchsorted(edges, t, side="right")) - 1, len(edges) - 2)
        return (
            *(np.asarray(x[k]) for x in (layers.A, layers.b)),
            [(1.0, *(np.asarray(x[k, 0]) for x in (layers.B, layers.V)))],
        )

    return oracles.moments(
        np.asarray(start.mean), np.asarray(start.covariance), layer_at, tuple(edges[1:]), edges=tuple(edges)
    )


# --- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_one_dimension_the_cheapest_scaling_is_constant():
    """∫ a = ½ log(Σ₁/Σ₀) at least ∫ a²: a is constant and the effort ¼ log²(Σ₁/Σ₀)/t₁; ∂effort/∂Σ₁ by hand."""
    start, target = (Gaussian(jnp.zeros(1), jnp.full((1, 1), x)) for x in (0.7, 1.9))
    plan = eqx.filter_jit(cheapest)(start, target, segments=3, t1=1.6, allow="A", tolerance=1e-10)
    log = 2 * np.log(1.9 / 0.7)
    np.testing.assert_allclose(plan.cost, log**2 / 4 / 1.6, rtol=1e-12)
    np.testing.assert_allclose(plan.weights.layers.A[:, 0, 0], log / 2 / 1.6, rtol=1e-9)
    np.testing.assert_allclose(plan.multiplier_covariance[0, 0], log / 2 / 1.6 / 1.9**2, rtol=1e-8)
    assert plan.stop == Stop.minimum
    assert plan.reason == "minimum"
    assert plan.residual < 1e-12


@pytest.mark.slow
def test_the_least_kinetic_energy_is_the_squared_distance_and_its_path_the_geodesic():
    """Straight lines in time follow A(t) of the geodesic to fourth order: twelve pieces leave 1e-6 of W₂²."""
    start, target = gaussian(1), gaussian(2)
    plan = eqx.filter_jit(cheapest)(start, target, controls="linear", segments=12, allow="Ab", cost="kinetic")
    square = wasserstein_squared(start, target)
    assert plan.stop == Stop.minimum
    assert plan.residual < 1e-10
    np.testing.assert_allclose(plan.cost, square, rtol=1e-6)
    energy = kinetic_energy(plan.weights, start, t1=1.0)
    np.testing.assert_allclose(energy, square, rtol=1e-6)
    assert energy > square * (1 - 1e-12)
    nodes, _, _ = nodes_of(plan.weights, start, 1.0)
    path = jax.vmap(geodesic(start, target).gaussian_at)(jnp.asarray(plan.weights.edges[1:]))
    np.testing.assert_allclose(nodes.mean, path.mean, atol=1e-4)
    np.testing.assert_allclose(nodes.covariance, path.covariance, atol=1e-4)


# --- multipliers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def free():
    """Least effort without caps, four segments, d = 2."""
    return eqx.filter_jit(lambda start, target: cheapest(start, target, segments=4, tolerance=1e-9))


@pytest.mark.slow
def test_multipliers_are_the_derivative_of_the_least_effort_in_the_target(free):
    start, target = pair_of(2, 4)
    plan = free(start, target)
    assert plan.stop == Stop.minimum
    assert plan.residual < 1e-12
    shift, bend = np.array([0.6, -0.3]), np.array([[0.3, 0.2], [0.2, -0.5]])

    def least(s, m, S):
        factor = jnp.linalg.cholesky(target.covariance + s * S)
        return free(start, Gaussian(target.mean + s * m, factor)).cost

    for m, S in ((shift, 0 * bend), (0 * shift, bend)):
        exact = plan.multiplier_mean @ m + jnp.sum(plan.multiplier_covariance * S)
        difference = oracles.derivative(partial(least, m=m, S=S), 0.0, step=1e-3)
        np.testing.assert_allclose(difference, exact, rtol=1e-6)


@pytest.mark.slow
def test_where_the_effort_falls_for_ever_the_plan_hits_and_says_so(free):
    """Attention is the cheaper the larger Σ is: this search walks towards blow-up."""
    start, target = pair_of(2, 0)
    plan = free(start, target)
    assert plan.stop == Stop.drifting
    assert "give a cap" in Stop[plan.stop]
    assert not bool(plan.converged)
    assert plan.residual < 1e-8
    assert plan.peak > 4
    costs = plan.history[:, 0]
    assert costs[-1] < 0.9 * costs[20]


@pytest.mark.slow
def test_least_effort_under_vmap_equals_the_loop(free):
    pairs = [pair_of(2, 4), pair_of(2, 8)]
    together = jax.vmap(free)(*(jax.tree.map(lambda *x: jnp.stack(x), *group) for group in zip(*pairs)))
    for i, pair in enumerate(pairs):
        alone = free(*pair)
        np.testing.assert_allclose(together.cost[i], alone.cost, rtol=1e-9)
        np.testing.assert_allclose(together.weights.layers.A[i], alone.weights.layers.A, atol=1e-6)
        assert together.iterations[i] == alone.iterations


# --- caps -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capped():
    def search(start, target, cap, warm_start):
        return cheapest(start, target, segments=5, cap=cap, warm_start=warm_start, tolerance=1e-5)

    return eqx.filter_jit(search)


@pytest.mark.slow
def test_caps_are_kept_at_every_node_and_their_multipliers_are_derivatives(capped):
    start, target = pair_of(2, 0)
    cap = 1.5 * jnp.maximum(jnp.diag(start.covariance), jnp.diag(target.covariance))
    along = geodesic(start, target)
    layers = jax.vmap(along.at)((jnp.arange(5) + 0.5) / 5)
    nothing = jnp.tile(0.1 * jnp.eye(2), (5, 1, 1))
    warm = Piecewise(A=layers.A, b=layers.b, B=nothing, V=0 * nothing, t1=1.0)
    plan = capped(start, target, cap, warm)
    assert plan.stop == Stop.minimum, plan.reason
    # 64; with the curvature of the caps the wrong way round it takes 125.
    assert plan.iterations < 95
    moments = landing(plan, start, np.linspace(0, 1, 6))
    np.testing.assert_allclose(moments[-1][0], target.mean, atol=1e-10)
    np.testing.assert_allclose(moments[-1][1], target.covariance, atol=1e-10)
    variances = np.stack([np.diag(S) for _, S in moments[:-1]])
    assert (variances <= np.asarray(cap)).all()
    # Active where it binds, and nowhere else.
    room, z = 1 - variances / np.asarray(cap), np.asarray(plan.multiplier_caps)
    assert (z > 0).all()
    assert (room * z * np.asarray(cap) < 1e-4 * float(plan.cost)).all()
    assert z.max() > 1e-2
    move = np.array([0.01, -0.02])

    def least(s):
        return float(capped(start, target, cap + s * move, plan.weights).cost)

    slope = (least(1.0) - least(-1.0)) / 2
    np.testing.assert_allclose(slope, -(z * move).sum(), rtol=2e-2)


@pytest.mark.slow
def test_a_start_above_the_caps_first_makes_room(capped):
    start = Gaussian(jnp.zeros(2), jnp.eye(2))
    target = Gaussian(jnp.array([0.3, 0.0]), jnp.array([[0.9, 0.0], [0.2, 0.8]]))
    # Swells to e² times the variance and shrinks back.
    A = 2.0 * jnp.array([1.0, 1.0, 1.0, -1.5, -1.5])[:, None, None] * jnp.eye(2)[None]
    warm = Piecewise(A=A, b=jnp.zeros((5, 2)), B=0 * A, V=0 * A, t1=1.0)
    plan = capped(start, target, 1.2 * jnp.ones(2), warm)
    assert plan.stop == Stop.minimum, plan.reason
    assert plan.room > 0
    assert plan.residual < 1e-10
    # The first column is the violation until there is room, then the effort.
    assert plan.history[0, 2] > 5
    assert plan.history[-1, 2] < 1.2


@pytest.mark.slow
def test_bounds_that_exclude_the_target_leave_the_smallest_residual():
    """|A| ≤ r lets the deviation grow by e^r at most, in one dimension: 1.9 − 0.7 e^{0.4} are missing in L."""
    start, target = (Gaussian(jnp.zeros(1), jnp.full((1, 1), x)) for x in (0.7, 1.9))
    plan = eqx.filter_jit(cheapest)(start, target, segments=2, allow="A", bounds={"A": 0.4})
    assert plan.stop == Stop.missed
    assert plan.residual >= 1.9**2 - (0.7 * np.exp(0.4)) ** 2 - 1e-12
    assert not bool(plan.converged)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"cap": 0.9}, "cap"),
        ({"cap": jnp.ones(3)}, "cap"),
        ({"cap": 2.0, "controls": "fourier"}, "cap"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"iterations": 0}, "iterations"),
        ({"t1": -1.0}, "t1"),
        ({"allow": ""}, "allow"),
    ],
)
def test_bad_arguments_are_refused(options, where):
    with pytest.raises(InputError) as caught:
        cheapest(gaussian(1), gaussian(2), **options)
    assert caught.value.where == where


# --- what it is made of ---------------------------------------------------------------------------------------------


def test_where_the_geodesic_misses_by_far_a_search_begins_with_controls_that_hit():
    """Ten layers of the geodesic miss this target by six of its deviations; corrections of that alone stalled."""
    start, target = pair_of(4, 38)

    @eqx.filter_jit
    def missed(start, target):
        ground = Ground(Problem(start, target, 10, 1.0, "ABVb", jnp.asarray(0.0)), None, "effort")
        along = along_geodesic(ground.problem, ground.problem.zero_controls())
        ends = [ground.precise(ground.flat(u))[0] for u in (along, first_controls(ground, None))]
        return [jnp.max(jnp.abs(ground.read(nodes)[0])) for nodes in ends]

    by_geodesic, by_search = missed(start, target)
    assert by_geodesic > 6
    assert by_search < 1e-6


@pytest.mark.parametrize("r", [2, 3])
def test_in_its_own_frame_a_target_is_the_standard_normal(r):
    """WΣWᵀ is the identity on the range and zero across it; a mean moved by a deviation is missed by one."""
    target = gaussian(5, 3, r)
    frame = frame_of(target)
    np.testing.assert_allclose(frame.W @ target.covariance @ frame.W.T, np.diag(np.arange(3) < r), atol=1e-12)
    moved = Gaussian(target.mean + target.factor[:, 0], target.factor)
    np.testing.assert_allclose(jnp.linalg.norm(frame.gap(moved, target)), 1, rtol=1e-12)


def step_of(H, r, J, G, w, radius):
    space = tangents(jnp.asarray(J))
    return newton_step(
        lambda v: jnp.asarray(H) @ v, space.project(jnp.asarray(r)), space,
        preconditioner(space, jnp.asarray(G), jnp.asarray(w), jnp.asarray(2.0)),
        radius=jnp.asarray(radius), accuracy=jnp.asarray(1e-12), products=60,
    )  # fmt: skip


def test_the_newton_step_solves_the_equations_of_lagrange():
    rng = np.random.default_rng(0)
    n, m, q = 12, 3, 2
    J, G, r, w = rng.normal(size=(m, n)), rng.normal(size=(q, n)), rng.normal(size=n), np.array([5.0, 1e-3])
    X = rng.normal(size=(n, n))
    H = X @ X.T / n + np.eye(n) + G.T @ (w[:, None] * G)
    p, length, promised = step_of(H, r, J, G, w, 1e3)
    exact = np.linalg.solve(np.block([[H, J.T], [J, np.zeros((m, m))]]), np.concatenate([-r, np.zeros(m)]))[:n]
    np.testing.assert_allclose(p, exact, atol=1e-9)
    np.testing.assert_allclose(promised, -(r @ exact + exact @ H @ exact / 2), rtol=1e-9)
    M = np.eye(n) + G.T @ (w[:, None] * G) / 2
    np.testing.assert_allclose(length, np.sqrt(exact @ M @ exact), rtol=1e-9)


def test_negative_curvature_is_followed_to_the_radius():
    rng = np.random.default_rng(1)
    n, m = 10, 2
    J, r = rng.normal(size=(m, n)), rng.normal(size=n)
    Z = null_space(J)[:, 0]
    # Nearly across the bad direction, so that steps of positive curvature come first.
    r -= 0.97 * (r @ Z) * Z
    H = np.diag(np.linspace(1, 4, n)) - 8 * np.outer(Z, Z)
    p, length, promised = step_of(H, r, J, np.zeros((0, n)), np.zeros(0), 7.0)
    np.testing.assert_allclose(J @ p, 0, atol=1e-12)
    np.testing.assert_allclose([length, np.linalg.norm(p)], 7.0, rtol=1e-12)
    np.testing.assert_allclose(promised, -(r @ p + p @ H @ p / 2), rtol=1e-10)
    assert promised > 0


def test_a_step_too_long_for_the_radius_ends_on_it():
    rng = np.random.default_rng(2)
    n, m, q = 10, 2, 3
    J, G, r, w = rng.normal(size=(m, n)), rng.normal(size=(q, n)), rng.normal(size=n), np.array([4.0, 1.0, 0.5])
    H = np.diag(np.linspace(1, 30, n)) + G.T @ (w[:, None] * G)
    _, longest, most = step_of(H, r, J, G, w, 1e3)
    p, length, promised = step_of(H, r, J, G, w, 0.8 * longest)
    M = np.eye(n) + G.T @ (w[:, None] * G) / 2
    np.testing.assert_allclose([length, np.sqrt(p @ M @ p)], 0.8 * longest, rtol=1e-10)
    np.testing.assert_allclose(J @ p, 0, atol=1e-12)
    np.testing.assert_allclose(promised, -(r @ p + p @ H @ p / 2), rtol=1e-10)
    # More than along the steepest direction alone, less than the whole step.
    assert 0.8 * most < promised < most


def test_steps_are_shared_where_the_path_needs_them():
    """Layers that are strong on one piece of five: twenty equal steps miss a thousand times what twenty shared do."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(5, 2, 2)) * np.array([0.3, 0.3, 20.0, 0.3, 0.3])[:, None, None]
    weights = Piecewise(A=jnp.asarray(A), b=jnp.ones((5, 2)), t1=1.0)
    nodes, arrived, tries = nodes_of(weights, gaussian(4), 1.0)
    assert bool(arrived)
    even, _ = smooth_nodes(weights, gaussian(4), 1.0, jnp.ones(5), steps=20)
    shared, energy = smooth_nodes(weights, gaussian(4), 1.0, tries.astype(float), steps=20)
    misses = [float(jnp.max(jnp.abs(x.factor - nodes.factor))) for x in (even, shared)]
    assert misses[1] < 1e-3 * misses[0]
    np.testing.assert_allclose(energy, kinetic_energy(weights, gaussian(4), t1=1.0), rtol=1e-5)
