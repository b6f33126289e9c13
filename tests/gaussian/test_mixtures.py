"""Mixtures of Gaussians are not invariant: how fast their components stop being Gaussian, and one that does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import run
from scipy.integrate import quad
from scipy.stats import norm

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, mixture_attention
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud, gauss_hermite
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Constant

NODES = 24
P = jnp.asarray([0.3, 0.7])
LINE = Gaussian(jnp.asarray([[-0.8], [0.6]]), jnp.asarray([[[0.5]], [[0.4]]]))
PLANE = Gaussian(
    jnp.asarray([[-0.5, 0.2], [0.4, -0.3]]), jnp.asarray([[[0.4, 0.0], [0.1, 0.3]], [[0.3, 0.1], [0.0, 0.4]]])
)
B, V = np.array([[0.5, 0.2], [-0.3, 0.6]]), np.array([[0.7, -0.4], [0.2, 0.9]])
STEPS = [0.005, 0.01, 0.02]


def tokens(components):
    """Gauss–Hermite tokens of all components, one component after the other."""
    clouds = [gauss_hermite(jax.tree.map(lambda x, k=k: x[k], components), nodes=NODES) for k in range(2)]
    points = jnp.concatenate([cloud.points for cloud in clouds])
    return Cloud.from_weights(points, jnp.concatenate([p * cloud.weights for p, cloud in zip(P, clouds)]))


def initial_slope(f):
    """f'(0) from f at three times and f(0) = 0: the error is of third order in the step."""
    s = [value / h for value, h in zip(f, STEPS)]
    first = [2 * s[0] - s[1], 2 * s[1] - s[2]]
    return (4 * first[0] - first[1]) / 3


def third_moment(x, w):
    w = w / w.sum()
    return float(w @ (x - w @ x) ** 3)


def test_attention_of_a_mixture_against_tokens():
    cloud = tokens(PLANE)
    flow = AttentionFlow(Constant(B=B, V=V), geometry=Euclidean())
    velocity, _ = flow.field(0.0, cloud, flow.weights.at(0.0))
    found = mixture_attention(PLANE, P, jnp.asarray(B), cloud.points) @ V.T
    error = jnp.sqrt(jnp.sum(cloud.weights[:, None] * (velocity - found) ** 2))
    np.testing.assert_allclose(error, 0, atol=1e-12)


def test_components_become_skew_at_the_predicted_rate():
    """E_k(x − m_k)³ has slope 3 v E_k[((x − m_k)² − s_k²) a(x)], by adaptive quadrature of the closed form."""
    beta, v = 0.9, 0.8
    flow = AttentionFlow(Constant(B=[[beta]], V=[[v]]), geometry=Euclidean())
    sol = run(flow, tokens(LINE), t1=STEPS[-1], dt=STEPS[0], save_at=STEPS)
    means, spreads = np.asarray(LINE.mean)[:, 0], np.asarray(LINE.factor)[:, 0, 0]

    def a(x):
        q = beta * x
        omega = np.asarray(P) * np.exp(q * means + 0.5 * q**2 * spreads**2)
        return omega @ (means + spreads**2 * q) / omega.sum()

    for k, (m, s) in enumerate(zip(means, spreads)):
        own = slice(k * NODES, (k + 1) * NODES)
        w = np.asarray(sol.final.weights)[own]
        grown = [third_moment(np.asarray(x)[own, 0], w) for x in sol.states.points]
        predicted = 3 * v * quad(lambda z, m=m, s=s: s**2 * (z**2 - 1) * a(m + s * z) * norm.pdf(z), -12, 12)[0]
        assert abs(predicted) > 1e-3
        np.testing.assert_allclose(initial_slope(grown), predicted, rtol=1e-4)


def test_components_leave_the_affine_maps_at_the_predicted_rate():
    """What no affine map of x₀ explains of x_t, in L² of a component: t times the same of the velocity."""
    start = tokens(PLANE)
    flow = AttentionFlow(Constant(B=B, V=V), geometry=Euclidean())
    sol = run(flow, start, t1=STEPS[-1], dt=STEPS[0], save_at=STEPS)
    velocity = np.asarray(mixture_attention(PLANE, P, jnp.asarray(B), start.points) @ V.T)
    for k in range(2):
        own = slice(k * NODES**2, (k + 1) * NODES**2)
        root = np.sqrt(np.asarray(start.weights)[own] / float(P[k]))[:, None]
        affine = root * np.column_stack([np.ones(NODES**2), np.asarray(start.points)[own]])

        def unexplained(y, root=root, affine=affine, own=own):
            y = root * np.asarray(y)[own]
            return np.linalg.norm(y - affine @ np.linalg.lstsq(affine, y, rcond=None)[0])

        assert unexplained(velocity) > 1e-3
        grown = [unexplained(x) for x in sol.states.points]
        np.testing.assert_allclose(initial_slope(grown), unexplained(velocity), rtol=1e-4)


def test_a_single_gaussian_stays_one():
    """The control: the same flow, one component, for a hundred times as long."""
    start = gauss_hermite(Gaussian(LINE.mean[0], LINE.factor[0]), nodes=NODES)
    flow = AttentionFlow(Constant(B=[[0.9]], V=[[0.8]]), geometry=Euclidean())
    end = run(flow, start, t1=1.0, dt=0.1).final
    assert abs(third_moment(np.asarray(end.points)[:, 0], np.asarray(end.weights))) < 1e-12


def test_a_mixture_needs_several_gaussians():
    with pytest.raises(InputError, match=r"components\.mean: has the wrong shape"):
        mixture_attention(Gaussian(jnp.zeros(2), jnp.eye(2)), P, jnp.asarray(B), jnp.zeros((3, 2)))
