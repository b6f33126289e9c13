"""Attention through a grid of the sphere: against the sums over pairs, and against its own bound on its error."""

from dataclasses import replace
from functools import partial

import compiled
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import jaxflow as jf
from jaxflow.attention import Auto, Chunked, Dense, Harmonic
from jaxflow.attention.harmonic import lebesgue, log_missed
from jaxflow.attention.harmonics import harmonics
from jaxflow.errors import InputError

KINDS = ["spread", "clustered", "antipodal", "weighted", "identical"]
N = 150


def cloud(kind, d, seed=0, n=N):
    """Unit vectors and log weights."""
    rng = np.random.default_rng(seed)
    x, e = rng.normal(size=(n, d)), np.eye(d)[0]
    if kind == "clustered":
        x = 0.05 * x + e
    if kind == "antipodal":
        x = 0.05 * x + e * rng.choice([-1, 1], n)[:, None]
    if kind == "identical":
        x = np.tile(x[:1], (n, 1))
    w = rng.uniform(size=n) ** (20 if kind == "weighted" else 0)
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.log(w / w.sum())


def heads(norm, d, seed=1):
    """−norm · I, whose queries look away from every token, and two heads of this norm at random."""
    B = np.random.default_rng(seed).normal(size=(3, d, d))
    B[0] = -np.eye(d)
    return norm * B / np.linalg.norm(B, 2, axis=(1, 2))[:, None, None]


@partial(jax.jit, static_argnums=0)
def tilted(kernel, B, x, log_w):
    return kernel.free(B, x, log_w, second=True)


def difference(found, exact):
    """The largest error of log m, a and the second moments at every token."""
    return np.maximum.reduce(
        [
            np.abs(found.log_m - exact.log_m),
            np.abs(found.mean - exact.mean).max(-1),
            np.abs(found.second - exact.second).max((-1, -2)),
        ]
    )


@pytest.mark.parametrize("l", [0, 1, 2, 5, 8])
def test_spherical_harmonics_pass_through_the_grid_unchanged(l):
    x, _ = cloud("spread", 3)
    H = harmonics(3, 8)
    for m in range(l + 1):
        for part in (np.real, np.imag):

            def Y(x, m=m, part=part):
                return part(special.sph_harm_y(l, m, np.arccos(x[:, 2]), np.arctan2(x[:, 1], x[:, 0])))

            C = H.analyse(jnp.asarray(Y(H.points))[:, None])
            np.testing.assert_allclose((H.basis(jnp.asarray(x)).T @ C)[:, 0], Y(x), atol=1e-13)


def test_trigonometric_polynomials_pass_through_the_grid_unchanged():
    x, _ = cloud("spread", 2)
    H = harmonics(2, 6)
    for m in range(7):
        for wave in (np.cos, np.sin):
            C = H.analyse(jnp.asarray(wave(m * np.arctan2(H.points[:, 1], H.points[:, 0])))[:, None])
            exact = wave(m * np.arctan2(x[:, 1], x[:, 0]))
            np.testing.assert_allclose((H.basis(jnp.asarray(x)).T @ C)[:, 0], exact, atol=1e-13)


@pytest.mark.parametrize("r", [0.1, 1.0, 9.0, 40.0])
@pytest.mark.parametrize("extra", [0, 5, 30])
def test_the_tail_of_the_exponential_is_bounded_and_not_by_much(r, extra):
    """The bound counts what the grid mistakes as well, up to √(2L+2) times as much on S² where terms fall slowly."""
    L, l = int(r) + 2 + extra, np.arange(400)
    on_circle = 2 * np.sum(special.ive(l, r)[L + 1 :])
    on_sphere = np.sum((np.sqrt(np.pi / (2 * r)) * special.ive(l + 0.5, r) * (2 * l + 1))[L + 1 :])
    for dim, exact in ((2, on_circle), (3, on_sphere)):
        bound = float(jnp.exp(log_missed(jnp.asarray(r), L, dim)))
        assert exact <= bound
        assert bound <= 50 * exact


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("L", [6, 12, 20])
def test_interpolation_misses_no_more_than_its_bound_and_not_much_less(L, dim):
    """In 200 directions of q and at 150 points y, for y e^{⟨q,y⟩} and y yᵀ e^{⟨q,y⟩} as well."""
    H = harmonics(dim, L)
    q, y = (cloud("spread", dim, seed=seed, n=n)[0] for seed, n in ((2, 200), (3, N)))
    basis = np.asarray(H.basis(jnp.asarray(y)))
    for r in (0.5, 2.0, 0.6 * L):
        for raised in (0, 1, 2):

            def F(y, r=r, raised=raised):
                return y[:, :1] ** raised * np.exp(r * (y @ q.T - 1))

            error = np.abs(basis.T @ np.asarray(H.analyse(jnp.asarray(F(H.points)))) - F(y)).max()
            bound = float(jnp.exp(log_missed(jnp.asarray(r), L, dim, raised=raised)))
            assert error <= bound + 1e-13
            assert bound <= 300 * error + 1e-12


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("L", [2, 12, 26])
def test_interpolation_enlarges_errors_by_its_lebesgue_constant_at_most(L, dim):
    H, x = harmonics(dim, L), np.concatenate([np.eye(dim), cloud("spread", dim)[0]])
    I = np.asarray(H.basis(jnp.asarray(x)).T @ H.analyse(jnp.eye(len(H.points))))
    largest = np.abs(I).sum(1).max()
    np.testing.assert_allclose(I.sum(1), 1, atol=1e-12)
    assert largest <= lebesgue(L, dim) <= 2 * largest


@pytest.mark.parametrize(
    ("norm", "d", "dtype"),
    [(norm, 3, "float64") for norm in (0.0, 1.0, 9.0, 40.0)]
    + [(norm, 2, "float64") for norm in (9.0, 40.0)]
    + [(3.0, 2, "float32"), (3.0, 3, "float32")],
)
def test_harmonic_equals_the_sums_over_pairs_within_its_own_bound(norm, d, dtype):
    """Where the bound exceeds the tolerance the answer is NaN."""
    # At norm 40 on S² the grid has 9000 points: one head is enough.
    kernel, B = Harmonic(norm), heads(norm, d)[: 1 if norm == 40 else None]
    tolerance = 1e-8 if dtype == "float64" else 1e-3
    answered = {}
    for kind in KINDS if norm < 40 else ("spread", "clustered"):
        at = B, *cloud(kind, d)
        found = tilted(kernel, *(jnp.asarray(y, dtype) for y in at))
        # What the kernel was given, and not what it was rounded from.
        exact = tilted(Dense(), *(jnp.asarray(jnp.asarray(y, dtype), float) for y in at))
        fine = np.asarray(found.error) <= tolerance
        assert found.mean.dtype == dtype
        assert np.all(difference(found, exact)[fine] <= np.asarray(found.error)[fine])
        assert np.isnan(found.mean[~fine]).all()
        answered[kind] = fine.mean()
    if norm <= 9:
        assert answered["spread"] == answered["antipodal"] == answered["weighted"] == 1
    # A cluster seen by queries that look away from it is out of reach there, e^{2‖B‖} below the largest value.
    assert answered["clustered"] == 1 if norm <= 1 else answered["clustered"] < 1


LOOSE = Harmonic(degree=16, tolerance=1.0)


@settings(deadline=None, max_examples=60)
@given(
    norm=st.floats(0, 14),
    kind=st.sampled_from(KINDS),
    d=st.sampled_from([2, 3]),
    seed=st.integers(0, 1000),
)
def test_the_estimated_error_is_never_below_the_true_one(norm, kind, d, seed):
    """One degree for all norms: from rounding errors to a truncation that answers nothing."""
    at = tuple(jnp.asarray(y) for y in (heads(norm, d, seed), *cloud(kind, d, seed)))
    found, exact = tilted(LOOSE, *at), tilted(Dense(), *at)
    error = np.asarray(found.error)
    fine = error <= 1
    assert np.all(difference(found, exact)[fine] <= error[fine])


def test_the_estimated_error_is_not_far_above_the_true_one():
    """A thousand times at most, at norm 9, whether tokens are all around or at the far end of the queries."""
    for kind in ("spread", "clustered"):
        at = tuple(jnp.asarray(y) for y in (heads(9.0, 3), *cloud(kind, 3)))
        found, exact = tilted(Harmonic(degree=34, tolerance=1.0), *at), tilted(Dense(), *at)
        assert np.max(found.error) <= 1000 * np.max(difference(found, exact))


@pytest.mark.parametrize("d", [2, 3])
def test_zero_heads_see_the_mean_of_the_cloud(d):
    x, log_w = cloud("weighted", d)
    found = Harmonic(0.0).free(jnp.zeros((2, d, d)), jnp.asarray(x), jnp.asarray(log_w))
    np.testing.assert_allclose(found.log_m, 0, atol=1e-14)
    mean = np.exp(log_w) @ x
    np.testing.assert_allclose(found.mean, np.broadcast_to(mean, (2, N, d)), atol=1e-14)


def test_one_token_sees_itself():
    x = jnp.asarray([[0.6, 0.0, -0.8]])
    D = jnp.asarray(heads(2.0, 3))
    found = tilted(Harmonic(2.0), D, x, jnp.zeros(1))
    np.testing.assert_allclose(found.mean, jnp.broadcast_to(x, (3, 1, 3)), atol=1e-12)
    np.testing.assert_allclose(found.log_m[:, 0], jnp.einsum("i,hij,j->h", x[0], D, x[0]), atol=1e-12)


def test_blocks_that_do_not_divide_the_tokens_change_nothing(monkeypatch):
    at = tuple(jnp.asarray(y) for y in (heads(2.0, 3), *cloud("weighted", 3)))
    whole = Harmonic(2.0).free(*at, second=True)
    monkeypatch.setattr("jaxflow.attention.harmonic.block_tokens", lambda K: 64)
    assert N % 64 != 0
    np.testing.assert_allclose(Harmonic(2.0).free(*at, second=True).second, whole.second, atol=1e-13)


def test_points_that_are_no_tokens_may_ask():
    at = tuple(jnp.asarray(y) for y in (heads(2.0, 3), *cloud("weighted", 3)))
    y = jnp.asarray(cloud("spread", 3, seed=5, n=11)[0])
    found, exact = (kernel.free(*at, at=y) for kernel in (Harmonic(2.0), Dense()))
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-10)
    np.testing.assert_allclose(found.log_m, exact.log_m, atol=1e-10)


def test_rotated_tokens_and_heads_give_rotated_means():
    (x, log_w), B = cloud("weighted", 3), heads(3.0, 3)
    R = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    kernel = Harmonic(3.0)
    one = tilted(kernel, jnp.asarray(B), jnp.asarray(x), jnp.asarray(log_w))
    two = tilted(kernel, jnp.asarray(R @ B @ R.T), jnp.asarray(x @ R.T), jnp.asarray(log_w))
    np.testing.assert_allclose(two.mean, one.mean @ R.T, atol=1e-11)
    np.testing.assert_allclose(two.log_m, one.log_m, atol=1e-11)


@pytest.mark.parametrize("d", [2, 3])
def test_tied_heads_and_their_ito_sum(d):
    B = heads(3.0, d)
    D = jnp.asarray(B + np.swapaxes(B, 1, 2)) / 2
    x, log_w = (jnp.asarray(y) for y in cloud("weighted", d))
    found, exact = (kernel.tied(D, x, log_w, quartic=True) for kernel in (Harmonic(3.0), Dense()))
    np.testing.assert_allclose(found.quartic, exact.quartic, rtol=1e-10)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-10)


@pytest.mark.parametrize("kernel", [Harmonic(3.0), Chunked(), Dense()])
def test_threefold_weights_make_m_threefold_and_the_ito_sum_ninefold(kernel):
    B = heads(3.0, 3)
    D = jnp.asarray(B + np.swapaxes(B, 1, 2)) / 2
    x, log_w = (jnp.asarray(y) for y in cloud("weighted", 3))
    one, three = (kernel.tied(D, x, log_w + shift, quartic=True) for shift in (0.0, np.log(3.0)))
    np.testing.assert_allclose(three.log_m, one.log_m + np.log(3.0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(three.mean, one.mean, atol=1e-12)
    np.testing.assert_allclose(three.quartic, 9 * one.quartic, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_derivatives_are_those_of_the_sums_over_pairs(d):
    """In heads, tokens and weights, forward and backward, to second order."""
    x, log_w = cloud("weighted", d, n=40)
    # Both continue differently off the sphere: f sees x/|x|.
    at = tuple(jnp.asarray(y) for y in (heads(2.0, d), x, log_w))
    tangents = [oracles.general(*y.shape, seed=5) for y in at]
    tangents[1] -= np.sum(tangents[1] * x, axis=1, keepdims=True) * x
    tangents = tuple(jnp.asarray(t) for t in tangents)

    def everything(kernel):
        def f(B, x, log_w):
            x = jf.Sphere().retract(x)
            t = kernel.free(B, x, log_w)
            return t.log_m, t.mean

        value, forward = jax.jvp(f, at, tangents)
        cotangents = jax.tree.map(lambda v: jnp.asarray(oracles.general(*v.shape, seed=6)), value)

        def gradient(*at):
            return jax.vjp(f, *at)[1](cotangents)

        return forward, *jax.jvp(gradient, at, tangents)

    exact, found = (jax.jit(partial(everything, kernel))() for kernel in (Dense(), Harmonic(2.0, tolerance=1e-10)))
    size = max(float(jnp.max(jnp.abs(y))) for y in jax.tree.leaves(exact))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, atol=1e-8 * size), exact, found)


def test_a_cloud_at_the_far_end_is_refused_or_summed_directly():
    at = tuple(jnp.asarray(y) for y in (heads(14.0, 3), *cloud("clustered", 3)))
    refused = Harmonic(14.0).free(*at)
    assert bool(jnp.isnan(refused.mean[0]).all())
    direct = Harmonic(14.0, fallback=Chunked()).free(*at)
    np.testing.assert_allclose(direct.mean, Chunked().free(*at).mean, atol=1e-15)
    assert float(jnp.max(direct.error)) == 0


@pytest.mark.parametrize(
    ("make", "call", "message"),
    [
        (Harmonic, lambda k: k, "needs one of norm and degree"),
        (lambda: Harmonic(1.0, degree=4), lambda k: k, "needs one of norm and degree"),
        (lambda: Harmonic(-1.0), lambda k: k, "norm: must be a number"),
        (lambda: Harmonic(degree=0), lambda k: k, "degree: must be at least 1"),
        (lambda: Harmonic(1.0, tolerance=0.0), lambda k: k, "tolerance"),
        (lambda: Harmonic(1.0), lambda k: k.degree_for(4, np.float64), "works on S¹ and S²"),
        (lambda: Harmonic(1.0, tolerance=1e-15), lambda k: k.degree_for(3, np.float64), "below what float64 allows"),
        (lambda: Harmonic(1.0, tolerance=1e-6), lambda k: k.degree_for(3, np.float32), "below what float32 allows"),
        (lambda: Harmonic(500.0), lambda k: k.degree_for(3, np.float64), "needs a degree above 80"),
        (lambda: Harmonic(degree=90), lambda k: k.degree_for(3, np.float64), "needs a degree above 80"),
        (lambda: Harmonic(40.0), lambda k: k.degree_for(3, np.float32), "needs a degree above 40"),
        (lambda: Harmonic(1.0), lambda k: k.free(jnp.eye(3)[None], 2 * jnp.eye(3), jnp.zeros(3)), "a norm off 1 by 1"),
        (
            lambda: Harmonic(1.0),
            lambda k: k.free(jnp.eye(3)[None], jnp.eye(3), jnp.zeros(3), causal=True),
            "tokens that come later",
        ),
        (lambda: Harmonic(1.0), lambda k: k(jnp.eye(3)[None], jnp.eye(3), jnp.zeros(3)), "not their queries"),
    ],
)
def test_what_harmonic_refuses(make, call, message):
    with pytest.raises(InputError, match=message):
        call(make())


def test_flows_refuse_harmonic_where_it_has_no_sphere():
    weights = jf.weights.Constant(D=jnp.eye(3))
    for wrong in ({"geometry": jf.Euclidean()}, {"causal": True}, {"law": "hardmax"}):
        with pytest.raises(InputError, match="kernel: needs tokens on the sphere"):
            jf.particles.AttentionFlow(weights, direction="descend", kernel=Harmonic(1.0), **wrong)
    flow = jf.particles.AttentionFlow(jf.weights.Constant(D=jnp.eye(4)), direction="descend", kernel=Harmonic(1.0))
    with pytest.raises(InputError, match="works on S¹ and S²"):
        jf.solve(flow, jf.particles.uniform(jax.random.key(0), n=5, dim=4), t1=1.0, dt=0.5)


def run(flow, tokens, **options):
    return compiled.run(flow, tokens, observe=jf.particles.balance, **options)


def test_a_run_with_its_balance_is_that_of_the_sums_over_pairs():
    """Unlike heads and the steepest law, which uses all of m, a and their balance."""
    D = jnp.asarray(oracles.general(2, 3, 3, seed=3))
    weights = jf.weights.Constant(D=(D + jnp.swapaxes(D, 1, 2)) / 2)
    flow = jf.particles.AttentionFlow(weights, law="steepest", direction="descend")
    tokens = jf.particles.octahedral(jax.random.key(0), n=60, noise=0.2)
    # The stages of Euler's method are on the sphere, where both kernels are the same function.
    options = {"t1": 0.2, "dt": 0.05, "method": jf.Euler()}
    exact = run(flow, tokens, **options)
    found = run(replace(flow, kernel=Harmonic(jf.weights.largest_norm(weights, 0.0, 0.2))), tokens, **options)
    assert int(exact.stats["harmonic_degree"]) == 0
    assert int(found.stats["harmonic_degree"]) >= 10
    np.testing.assert_allclose(found.final.points, exact.final.points, atol=1e-10)
    np.testing.assert_allclose(found.observables.rate, exact.observables.rate, rtol=1e-8)
    np.testing.assert_allclose(found.observables.residual, exact.observables.residual, atol=1e-9)


def test_off_the_sphere_points_stand_for_their_directions():
    x, log_w = (jnp.asarray(y) for y in cloud("spread", 3, n=20))
    kernel, B = Harmonic(1.0), jnp.asarray(heads(1.0, 3))
    far, near = (tilted(kernel, B, r * x, log_w) for r in (1.3, 1.0))
    np.testing.assert_allclose(far.mean, near.mean, atol=1e-14)


def test_random_heads_with_their_ito_term():
    D0 = jf.weights.random_heads(jax.random.key(3), heads=2, dim=2)
    weights = jf.weights.OrnsteinUhlenbeck(initial=D0, mean=jnp.eye(2), noise_var=0.5)
    flow = jf.particles.AttentionFlow(weights, direction="descend")
    tokens = jf.particles.equispaced(jax.random.key(0), n=40, noise=0.05, centres=5)
    options = {"t1": 0.1, "dt": 0.05, "key": jax.random.key(1)}
    exact, found = run(flow, tokens, **options), run(replace(flow, kernel=Harmonic(20.0)), tokens, **options)
    for name in ("energy", "dt_energy_integral", "martingale"):
        np.testing.assert_allclose(
            getattr(found.observables, name), getattr(exact.observables, name), rtol=1e-9, atol=1e-9
        )


def test_auto_takes_direct_sums_for_few_tokens_and_the_grid_for_many():
    auto = Auto()
    kinds = {"dim": 3, "heads": 8, "dtype": "float64"}
    assert auto.choose(9.0, n=500, **kinds) == Chunked()
    many = auto.choose(9.0, n=100_000, **kinds)
    assert many == Harmonic(9.0, fallback=Chunked())
    # Stronger heads need a finer grid, and pay for it with more tokens only.
    crossover = [
        next(n for n in (2**k for k in range(6, 30)) if auto.choose(r, n=n, **kinds) != Chunked()) for r in (1, 9, 30)
    ]
    assert crossover[0] < crossover[1] < crossover[2]
    for other in ({"dim": 5}, {"dtype": "float32"}):
        assert auto.choose(60.0, n=10**6, **(kinds | other)) == Chunked()


def test_auto_is_settled_by_the_run_and_says_what_it_took():
    tokens = jf.particles.equispaced(jax.random.key(0), n=400, noise=0.05, centres=5)
    flow = jf.particles.AttentionFlow(jf.weights.Constant(D=jnp.eye(2)), direction="descend", kernel=Auto())
    options = {"t1": 0.2, "dt": 0.1, "method": jf.Euler()}
    found = jf.solve(flow, tokens, **options)
    assert int(found.stats["harmonic_degree"]) > 0
    exact = compiled.run(replace(flow, kernel=Dense()), tokens, **options)
    np.testing.assert_allclose(found.final.points, exact.final.points, atol=1e-9)
    # Under jit the norm of the heads is not known; whoever settles before keeps the choice.
    assert int(compiled.run(flow, tokens, **options).stats["harmonic_degree"]) == 0
    assert flow.settle(tokens, 0.0, 0.2).kernel == Harmonic(1.0, fallback=Chunked())
    assert replace(flow, causal=True).settle(tokens, 0.0, 0.2).kernel == Chunked()


def test_the_largest_norm_of_schedules():
    norm = jf.weights.largest_norm
    assert norm(jf.weights.Constant(B=[[0.0, 3.0], [1.0, 0.0]], V=jnp.eye(2)), 0.0, 1.0) == pytest.approx(3)
    steps = jf.weights.Piecewise(D=[jnp.eye(2), -5 * jnp.eye(2), 7 * jnp.eye(2)], t1=3.0)
    assert norm(steps, 0.0, 1.5) == pytest.approx(5)
    growing = jf.weights.Function(lambda t: jf.weights.make_layer(D=jnp.eye(2) * t))
    assert norm(growing, 1.0, 4.0) == pytest.approx(4)
    assert norm(jf.weights.Constant(A=jnp.eye(2)), 0.0, 1.0) is None
    ou = jf.weights.OrnsteinUhlenbeck(initial=jnp.eye(3)[None], mean=jnp.eye(3), noise_var=2.0)
    paths = [ou.sample(jax.random.key(i), jnp.linspace(0, 5, 50)) for i in range(2)]
    largest = max(norm(path, 0.0, 5.0) for path in paths)
    assert 0.5 * largest < norm(ou, 0.0, 5.0) < 4 * largest
