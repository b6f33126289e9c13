"""Where layer normalisation stands: the polar form, how fast tokens meet, and what does not fit."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import solve_ivp

from jaxflow.errors import InputError
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, equiangular
from jaxflow.solve import Dopri8, solve
from jaxflow.weights import Constant

N, D, H = 5, 3, 2
THETA, R, W = oracles.unit_rows(N, D), np.array([0.4, 1.0, 2.0, 0.7, 1.5]), oracles.weights(N)
B, V = oracles.general(H, D, D, scale=0.7, seed=2), oracles.general(H, D, D, seed=3)
A, b = oracles.general(D, D, scale=0.5, seed=4), oracles.general(D, scale=0.5, seed=5)
CLOUD = Cloud.from_weights(jnp.asarray(R[:, None] * THETA), jnp.asarray(W))
TIGHT = {"method": Dopri8(), "rtol": 1e-11, "atol": 1e-12}


def polar(t, law, *, peri, A=None, b=None):
    """θ and r at t of θ̇ = P_θ u/r, ṙ = ⟨θ, u⟩, u the velocity of the normalised tokens in R^d."""

    def right(t, z):
        theta, r = z[: N * D].reshape(N, D), z[N * D :]
        u = oracles.velocity(theta, W, list(zip(np.ones(H), B, V)), law=law, A=A, b=b, sphere=False)
        if peri:
            u /= np.linalg.norm(u, axis=1, keepdims=True)
        radial = np.sum(theta * u, 1)
        return np.concatenate([((u - radial[:, None] * theta) / r[:, None]).ravel(), radial])

    z = solve_ivp(right, (0, t), np.concatenate([THETA.ravel(), R]), method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return z[: N * D].reshape(N, D), z[N * D :]


@pytest.mark.parametrize(("normalization", "law"), [("pre", "softmax"), ("peri", "unnormalized")])
def test_the_polar_form(normalization, law):
    parts = {"A": A, "b": b} if normalization == "pre" else {}
    flow = AttentionFlow(Constant(B=B, V=V, **parts), law=law, geometry=Euclidean(), normalization=normalization)
    x = run(flow, CLOUD, t1=0.3, **TIGHT).final.points
    theta, r = polar(0.3, law, peri=normalization == "peri", **parts)
    np.testing.assert_allclose(x, r[:, None] * theta, atol=1e-8)
    assert np.abs(r - R).max() > 0.1


def test_peri_moves_every_token_at_speed_one_and_pre_does_not_see_norms():
    pre = AttentionFlow(Constant(B=B, V=V), geometry=Euclidean(), normalization="pre")
    layer = pre.weights.at(0.0)
    v = pre.field(0.0, CLOUD, layer)[0]
    np.testing.assert_allclose(v, pre.field(0.0, Cloud(jnp.asarray(THETA), CLOUD.log_weights), layer)[0], atol=1e-15)
    peri = dataclasses.replace(pre, normalization="peri")
    u = peri.field(0.0, CLOUD, layer)[0]
    np.testing.assert_allclose(u, v / jnp.linalg.norm(v, axis=1, keepdims=True), atol=1e-15)


def test_post_is_the_sphere():
    cloud = Cloud(jnp.asarray(THETA))
    post = AttentionFlow(Constant(B=B, V=V), normalization="post")
    plain = AttentionFlow(Constant(B=B, V=V))
    layer = plain.weights.at(0.0)
    np.testing.assert_array_equal(post.field(0.0, cloud, layer)[0], plain.field(0.0, cloud, layer)[0])


def gap(normalization, n, times):
    """1 − ρ = |x − y|²/2 at these times, of n equiangular tokens under V = B = I."""
    geometry = Sphere() if normalization == "post" else Euclidean()
    flow = AttentionFlow(Constant(B=np.eye(n), V=np.eye(n)), geometry=geometry, normalization=normalization)
    sol = run(flow, equiangular(n=n, dim=n, cosine=0.2), t1=times[-1], save_at=times, **TIGHT)
    theta = Sphere().retract(sol.states.points)
    return np.asarray(jnp.sum((theta[:, 0] - theta[:, 1]) ** 2, -1) / 2)


def test_tokens_meet_exponentially_after_post_normalisation():
    """1 − ρ ~ e^{−2t}: the closed equation has ρ' = 2(1 − ρ) near ρ = 1, for every n."""
    g = gap("post", 4, [6.0, 7.0])
    np.testing.assert_allclose(np.diff(np.log(g)), -2, rtol=1e-3)


@pytest.mark.parametrize(("normalization", "n"), [("pre", 4), ("peri", 2)])
def test_tokens_meet_like_the_inverse_square_of_depth_after_pre_normalisation(normalization, n):
    """ṙ → 1 and (1 − ρ)' = −2(1 − ρ)/r: 1 − ρ ~ 1/t²."""
    g = gap(normalization, n, [400.0, 800.0])
    np.testing.assert_allclose(np.diff(np.log(g)) / np.log(2), -2, atol=0.02)


def test_placements_that_do_not_fit_are_refused():
    free = Constant(B=B, V=V)
    with pytest.raises(InputError, match=r"normalization: keeps tokens on the sphere(.|\n)*Sphere\(\)"):
        AttentionFlow(free, geometry=Euclidean(), normalization="post")
    for normalization in ("pre", "peri"):
        with pytest.raises(InputError, match=r"normalization: lets tokens leave the sphere(.|\n)*Euclidean\(\)"):
            AttentionFlow(free, normalization=normalization)
        options = {"geometry": Euclidean(), "normalization": normalization}
        with pytest.raises(InputError, match="law: descends an energy of tokens that are not normalised"):
            AttentionFlow(Constant(D=np.eye(3)), direction="descend", law="steepest", **options)
        flow = AttentionFlow(free, **options)
        with pytest.raises(InputError, match=r"state\.points: holds a token at 0"):
            solve(flow, Cloud(jnp.asarray([[1.0, 0, 0], [0, 0, 0]])), t1=1.0)
        tied = AttentionFlow(Constant(D=np.eye(3)), direction="descend", **options)
        with pytest.raises(InputError, match="observe: does not apply: E is the energy"):
            solve(tied, CLOUD, t1=1.0, observe=balance)
    for parts in ({"A": A}, {"b": b}):
        with pytest.raises(InputError, match="normalization: divides attention by its own norm"):
            AttentionFlow(Constant(B=B, V=V, **parts), geometry=Euclidean(), normalization="peri")
