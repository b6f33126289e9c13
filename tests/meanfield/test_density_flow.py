"""Densities in motion: four families of exact solutions, tokens at the points of a grid, statuses, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm
from scipy.special import iv

from jaxflow.errors import InputError, NumericalError
from jaxflow.meanfield import Density, DensityFlow, InfiniteDensityFlow, balance, coefficients, least
from jaxflow.meanfield.waves import area, waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, InfiniteHeads, OrnsteinUhlenbeckLimit
from jaxflow.solve import Dopri8, Status
from jaxflow.weights import Constant, OrnsteinUhlenbeck

TIGHT = {"method": Dopri8(), "rtol": 1e-12, "atol": 1e-12}


def solved(flow, density, t1, **knobs):
    return run(flow.settle(density, 0.0, t1), density, t1=t1, **knobs)


def smooth(dim, degree=12):
    """A density without symmetry."""
    a = oracles.general(2, dim, seed=dim)
    return Density.from_function(
        lambda x: jnp.exp(x @ a[0]) + 0.5 * jnp.exp(0.7 * (x @ a[1])) * (1 + x[:, 0] * x[:, 1]),
        dim=dim,
        degree=degree,
        normalize=True,
    )


def heads(dim, h=2):
    B, V = oracles.general(h, dim, dim, scale=0.6, seed=1), oracles.general(h, dim, dim, seed=2)
    return list(zip((0.7, 0.4), B, V))


def as_layer(parts, **rest):
    c, B, V = (np.stack(x) for x in zip(*parts))
    return Constant(B=B, V=V, mass=c, **rest)


# --- exact solutions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_feed_forward_alone_carries_the_uniform_density_to_an_angular_gaussian(dim):
    """ẋ = P_x A x is x(t) = e^{At}x/|e^{At}x|, and ρ = 1/(|S| det L |L^{-1}x|^d), L = e^{At}: spectrally accurate."""
    A, x = oracles.general(dim, dim, scale=0.25, seed=5), oracles.unit_rows(40, dim, seed=6)
    L = expm(A)
    exact = 1 / (area(dim) * np.linalg.det(L) * np.linalg.norm(x @ np.linalg.inv(L).T, axis=1) ** dim)
    errors = []
    for degree in (8, 16, 24):
        sol = solved(DensityFlow(Constant(A=A)), Density.uniform(dim=dim, degree=degree), 1.0, dt=0.02)
        errors.append(float(np.abs(sol.final(jnp.asarray(x)) - exact).max()))
        np.testing.assert_allclose(sol.final.mass, 1, rtol=1e-15)
    assert errors[-1] < 2e-7, errors
    slopes = np.diff(np.log(errors))
    assert slopes.max() < -3.5, errors


@pytest.mark.parametrize("dim", [2, 3])
def test_attention_without_temperature_keeps_poissons_kernel(dim):
    """B = 0, V = I: ẋ = P_x Z, Z the mean. Möbius maps keep ρ = ((1−|w|²)/|x−w|²)^{d−1}/|S|, with ẇ = ½(1−|w|²)Z."""
    axis = np.array([0.6, 0.8]) if dim == 2 else np.array([0.36, 0.48, 0.8])

    def mean(w):
        if dim == 2:
            return w
        weight = (1 - w**2) ** 2 / 2
        return quad(lambda s: s * weight / (1 + w**2 - 2 * w * s) ** 2, -1, 1, epsabs=1e-14, epsrel=1e-13)[0]

    def kernel(w):
        return lambda x: ((1 - w**2) / (1 + w**2 - 2 * w * (x @ axis))) ** (dim - 1) / area(dim)

    w0, t1 = 0.2, 0.8
    w1 = solve_ivp(lambda t, w: 0.5 * (1 - w**2) * mean(w[0]), (0, t1), [w0], rtol=1e-12, atol=1e-13).y[0, -1]
    assert w1 > w0 + 0.03
    flow = DensityFlow(Constant(B=np.zeros((dim, dim)), V=np.eye(dim)))
    sol = solved(flow, Density.from_function(kernel(w0), dim=dim, degree=24), t1, dt=0.02)
    x = oracles.unit_rows(40, dim, seed=7)
    np.testing.assert_allclose(sol.final(jnp.asarray(x)), kernel(w1)(x), atol=1e-10)
    np.testing.assert_allclose(sol.final.mean, mean(w1) * axis, atol=1e-11)


@pytest.mark.parametrize("dim", [2, 3])
def test_noise_alone_is_the_heat_equation(dim):
    """c_k(t) = e^{−l(l+d−2)t/κ} c_k."""
    start, kappa, t1 = smooth(dim), 3.0, 0.5
    flow = DensityFlow(Constant(A=np.zeros((dim, dim))), kappa=kappa)
    l = np.arange(13)
    left = solved(flow, start, t1, dt=0.002, save_every=250).final.power / start.power
    np.testing.assert_allclose(left, np.exp(-2 * l * (l + dim - 2) * t1 / kappa), rtol=1e-6, atol=1e-10)


def test_noisy_tokens_without_temperature_come_to_rest_as_von_mises():
    """B = 0, V = I on S¹: ρ ∝ e^{κ⟨r,x⟩} with r = I₁(κr)/I₀(κr), beyond the pitchfork at κ = 2."""
    kappa = 2.5
    flow = DensityFlow(Constant(B=np.zeros((2, 2)), V=np.eye(2)), kappa=kappa)
    final = solved(flow, smooth(2), 120.0, dt=0.01, save_every=12000).final
    r = float(jnp.linalg.norm(final.mean))
    assert r > 0.3
    np.testing.assert_allclose(r, iv(1, kappa * r) / iv(0, kappa * r), rtol=1e-8)
    x = jnp.asarray(oracles.unit_rows(30, 2))
    np.testing.assert_allclose(
        final(x), np.exp(kappa * np.asarray(x @ final.mean)) / (2 * np.pi * iv(0, kappa * r)), rtol=1e-7
    )


# --- tokens at the points of a grid ---------------------------------------------------------------------------------


def nodes(density, degree):
    """The density as weighted tokens: exact for polynomials up to twice the degree."""
    W = waves(getattr(density, "dim", 2), 1, degree)
    x = jnp.asarray(W.points)
    return Cloud.from_weights(x, jnp.asarray(W.weights) * density(x))


@pytest.mark.parametrize(
    ("dim", "law"), [(2, "softmax"), (2, "unnormalized"), (2, "steepest"), (3, "softmax"), (3, "steepest")]
)
def test_the_velocity_is_that_of_a_cloud_of_its_values(dim, law):
    density, d = smooth(dim), dim
    cloud = nodes(density, 14 if dim == 3 else 30)
    if law == "steepest":
        weights, direction = Constant(D=oracles.symmetric(2, d, seed=3), mass=np.array([0.6, 0.9])), "descend"
    else:
        weights = as_layer(heads(d), A=oracles.general(d, d, seed=4), b=oracles.general(d, seed=5))
        direction = None
    flow = DensityFlow(weights, law=law, direction=direction)
    layer = weights.at(0.0)
    velocity = eqx.filter_jit(AttentionFlow(weights, law=law, direction=direction).field)(0.0, cloud, layer)[0]
    settled = flow.settle(density, 0.0, 1.0)
    change, found = eqx.filter_jit(settled.field)(0.0, density, layer)
    # Both velocities against polynomials: ∫ρ⟨v, ∇Y_k⟩ by the nodes of either.
    W = waves(dim, density.degree, 14 if dim == 3 else 30)
    flux = (density(jnp.asarray(W.points)))[None] * jnp.einsum("egd,gd->eg", jnp.asarray(W.frame), velocity)
    # The nodes of the cloud integrate to 1e-10 up to half the degree.
    K = 9 if dim == 2 else 16
    np.testing.assert_allclose(change[:K], W.against_gradients(flux)[:K], atol=3e-9)
    inner = jnp.abs(jnp.einsum("gd,gd->g", found.velocity, jnp.asarray(settled.on(density).points)))
    assert float(jnp.max(inner)) < 1e-12


def test_the_weak_form_of_the_unnormalized_law_is_exact():
    """On the default grid, degree N + M/2, as on one three times as fine; not on one of degree N."""
    density = smooth(3, 6)
    weights = as_layer(heads(3))

    def change(grid):
        flow = DensityFlow(weights, law="unnormalized", grid=grid, norm=1.7)
        return eqx.filter_jit(flow.field)(0.0, density, weights.at(0.0))[0]

    exact = change(45)
    np.testing.assert_allclose(change(None), exact, atol=1e-13)
    assert float(jnp.max(jnp.abs(change(6) - exact))) > 1e-9


@pytest.mark.parametrize("dim", [2, 3])
def test_attention_in_the_density_is_its_integral(dim):
    """log m and a by the double loop over a grid twice as fine."""
    density, parts = smooth(dim), heads(dim)
    cloud = nodes(density, 18 if dim == 3 else 40)
    weights = as_layer(parts)
    flow = DensityFlow(weights).settle(density, 0.0, 1.0)
    tilted = flow.tilt(density, weights.at(0.0))
    at = waves(dim, 1, flow.grid_degree(density)).points
    for h, (_, B, _) in enumerate(parts):
        p = np.asarray(cloud.weights)[None] * np.exp(at @ B.T @ np.asarray(cloud.points).T)
        np.testing.assert_allclose(tilted.log_m[h], np.log(p.sum(1)), atol=1e-10)
        np.testing.assert_allclose(tilted.mean[h], (p / p.sum(1, keepdims=True)) @ cloud.points, atol=1e-10)


@pytest.mark.parametrize("dim", [2, 3])
def test_infinitely_many_heads_move_it_as_they_move_tokens(dim):
    kernel, density = OrnsteinUhlenbeckLimit(noise_var=1.5), smooth(dim)
    cloud = nodes(density, 24)
    moved, found = InfiniteHeads(kernel, direction="descend").field(0.4, cloud)
    flow = InfiniteDensityFlow(kernel, dim=dim, direction="descend")
    change, potential = flow.field(0.4, density)
    W = waves(dim, density.degree, 24)
    flux = density(jnp.asarray(W.points))[None] * jnp.einsum("egd,gd->eg", jnp.asarray(W.frame), moved)
    np.testing.assert_allclose(change, W.against_gradients(flux), atol=1e-10)
    E = 0.5 * flow.on(density).integral(potential.rho * potential.phi)
    np.testing.assert_allclose(E, 0.5 * jnp.sum(cloud.weights * found.phi), rtol=1e-11)
    dE = flow.on(density).integral(potential.rho * potential.dt_phi)
    np.testing.assert_allclose(dE, jnp.sum(cloud.weights * found.dt_phi), rtol=1e-11)


def test_under_noisy_heads_density_and_tokens_see_the_same_path():
    """Euler steps with one key: the heads agree step by step, and so do density and weighted tokens up to O(dt)."""
    weights = OrnsteinUhlenbeck(initial=oracles.symmetric(2, 2, scale=0.5, seed=8), mean=np.eye(2))
    density, key = smooth(2, 24), jax.random.key(4)
    sol = solved(DensityFlow(weights, direction="descend"), density, 0.3, dt=0.002, key=key)
    tokens = run(AttentionFlow(weights, direction="descend"), nodes(density, 40), t1=0.3, dt=0.002, key=key)
    gap = coefficients(tokens.final, 4) - sol.final.at_degree(4).coefficients
    moved = coefficients(tokens.final, 4) - density.at_degree(4).coefficients
    assert float(jnp.max(jnp.abs(gap))) < 5e-3 * float(jnp.max(jnp.abs(moved)))


def test_compiled_equals_eager_and_derivatives_agree_with_differences():
    density, D = smooth(2), jnp.asarray(oracles.symmetric(2, 2, seed=9))
    S = jnp.asarray(oracles.symmetric(2, 2, seed=10))

    def along(s):
        flow = DensityFlow(Constant(D=D + s * S), direction="descend", norm=6.0)
        return run.__wrapped__(flow, density, t1=0.2, dt=0.1, observe=balance).observables.energy[-1]

    value, slope = jax.jit(jax.value_and_grad(along))(0.3)
    compiled = jax.jit(along)
    np.testing.assert_allclose(value, compiled(0.3), rtol=1e-13)
    infinite = InfiniteDensityFlow(OrnsteinUhlenbeckLimit(noise_var=1.5), dim=2, direction="ascend")
    for x, y in zip(infinite.field(0.3, density), eqx.filter_jit(infinite.field)(0.3, density)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13), x, y)
    np.testing.assert_allclose(slope, oracles.derivative(compiled, 0.3, step=1e-2), rtol=1e-9)


# --- statuses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", [{"dt": 0.02, "save_every": 5}, {"save_at": (0.0, 1.0, 2.0, 4.0)}])
def test_a_density_that_clusters_ends_unresolved_and_not_in_nonsense(knobs):
    density = smooth(2, 16)
    flow = DensityFlow(Constant(D=2 * np.eye(2)), direction="ascend")
    sol = solved(flow, density, 4.0, **knobs)
    assert sol.outcome == "unresolved"
    assert sol.status == Status.unresolved
    assert 0.1 < float(sol.t_end) < 3
    assert np.isfinite(np.asarray(sol.states.coefficients)).all()
    assert bool(sol.valid[0])
    assert not bool(sol.valid[-1])
    np.testing.assert_allclose(sol.states.mass, 1, rtol=1e-14)
    assert float(least(sol.final)) > -0.02
    with pytest.raises(NumericalError, match=r"became negative[\s\S]*raise the degree"):
        sol.raise_if_failed()
    # A higher degree gets further, and a looser word on negative values too.
    finer = solved(flow, smooth(2, 32), 4.0, **knobs)
    assert float(finer.t_end) > float(sol.t_end) + 0.1


def test_attention_with_no_digits_left_is_nan_and_not_wrong():
    """Heads of norm 20 that look away from a concentrated density: m_h is e^{−40} of its largest value."""
    x0 = np.array([1.0, 0.0])
    peak = lambda x: jnp.exp(60 * (x @ x0 - 1))  # noqa: E731
    density = Density.from_function(peak, dim=2, degree=40, normalize=True)
    flow = DensityFlow(Constant(D=20 * np.eye(2)), direction="descend").settle(density, 0.0, 1.0)
    layer = flow.weights.at(0.0)
    tilted = flow.tilt(density, layer)
    known = np.isfinite(np.asarray(tilted.log_m[0]))
    assert 0 < known.sum() < known.size
    cloud = nodes(peak, 80)
    at = waves(2, 1, flow.grid_degree(density)).points
    exact = np.log(np.exp(20 * at @ np.asarray(cloud.points).T) @ np.asarray(cloud.weights))
    np.testing.assert_allclose(np.asarray(tilted.log_m[0])[known], exact[known], atol=2e-6)
    assert solved(flow, density, 0.1, dt=0.1).outcome == "nonfinite"


# --- refusals -------------------------------------------------------------------------------------------------------

TIED = Constant(D=np.eye(3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DensityFlow(TIED, direction="descend", law="hardmax"), "velocity that jumps"),
        (lambda: DensityFlow(TIED), "needed for tied heads"),
        (lambda: DensityFlow(TIED, direction="descend", kappa=-1.0), "must be positive"),
        (lambda: DensityFlow(TIED, direction="descend", norm=-1.0), "number ≥ 0"),
        (lambda: DensityFlow(TIED, direction="descend", negativity=0.0), "negativity"),
        (lambda: DensityFlow(Constant(D=np.eye(4)), direction="descend"), "S¹ and S²"),
        (lambda: solved(DensityFlow(TIED, direction="descend"), smooth(2), 1.0), "another dimension"),
        (lambda: solved(DensityFlow(TIED, direction="descend", grid=5), smooth(3, 6), 1.0), "coarser than the density"),
        (
            lambda: DensityFlow(Constant(A=np.eye(3), D=99 * np.eye(3)), direction="descend").settle(
                smooth(3), 0.0, 1.0
            ),
            "above",
        ),
        (lambda: run(DensityFlow(TIED, direction="descend"), Cloud(jnp.eye(3)), t1=1.0), "must be a Density"),
        (lambda: run(DensityFlow(TIED, direction="descend"), smooth(3), t1=1.0), "not known before tracing"),
        (
            lambda: DensityFlow(TIED, direction="descend").check(Density(jnp.asarray([0.28, 5.0, 0, 0]), 3)),
            "negative values at this degree",
        ),
        (lambda: InfiniteDensityFlow(OrnsteinUhlenbeckLimit(), dim=4, direction="descend"), "2 for S¹"),
        (lambda: InfiniteDensityFlow(OrnsteinUhlenbeckLimit(), dim=2, direction="descend", kappa=0.0), "positive"),
    ],
)
def test_what_has_no_density_flow_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
