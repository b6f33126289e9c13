"""The action of a path of clouds in the metric weighted by the mobility (arXiv:2605.18870, §4):

    A = Σ_k Δs Σ_i w_i b̂_{μ_{k+½}}(x_i^{k+½}) d(x_i^k, x_i^{k+1})²/Δs²,     b̂_μ(x) = (Σ_h c̄_h m_h(x)^{-1})^{-1}

with k = 0..K−1, Δs = 1/K and x^{k+½} halfway on the geodesic. For smooth paths it misses the integral by O(Δs²), with
even powers of Δs only.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.attention import Dense
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, mobility
from jaxflow.particles.flow import Terms
from jaxflow.weights import Layer
from jaxflow.weights.schedules import Held


def mobility_of(layer: Layer, cloud: Cloud, geometry: AbstractGeometry) -> Float[Array, " n"]:
    """b̂_μ(x_i) of a cloud under tied heads: the harmonic mean over heads of m_h(x_i) = Σ_j w_j e^{⟨D_h x_i, x_j⟩}."""
    flow = AttentionFlow(
        weights=Held(layer=layer), law="steepest", direction="descend", geometry=geometry, kernel=Dense()
    )
    return mobility(Terms(layer, flow.tilt(cloud, layer)))


def step_action(
    layer: Layer, x: Float[Array, "n d"], y: Float[Array, "n d"], log_w: Float[Array, " n"], geometry: AbstractGeometry
) -> Scalar:
    """Σ_i w_i b̂(halfway) d(x_i, y_i)²: the square of the distance moved, for short steps."""
    halfway = Cloud(geometry.retract((x + y) / 2), log_w)
    return jnp.einsum("i,i,i->", jnp.exp(log_w), mobility_of(layer, halfway, geometry), geometry.squared_distance(x, y))


def path_action(layer: Layer, path: Float[Array, "t n d"], log_w: Float[Array, " n"]) -> Scalar:
    """A of a path on the sphere at equispaced times. Cost O(t h n² d)."""
    steps = jax.vmap(lambda x, y: step_action(layer, x, y, log_w, Sphere()))(path[:-1], path[1:])
    return (path.shape[0] - 1) * jnp.sum(steps)


def great_circles(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d"], side: Float[np.ndarray, "n d"], *, steps: int
) -> tuple[Float[np.ndarray, "t n d"], bool]:
    """The great circles from x_i to y_i at equispaced times, and whether some pair is antipodal: then its geodesic is
    not unique, and the one taken leaves towards side_i (any vector that is not parallel to x_i)."""
    cosine = np.sum(x * y, axis=1, keepdims=True)
    tangent = y - cosine * x
    sine = np.linalg.norm(tangent, axis=1, keepdims=True)
    vague = sine < 1e-8
    tangent = np.where(vague, side - np.sum(side * x, axis=1, keepdims=True) * x, tangent)
    tangent = tangent / np.linalg.norm(tangent, axis=1, keepdims=True)
    angle = np.arctan2(sine, cosine)
    s = np.linspace(0, 1, steps + 1)[:, None, None]
    path = np.cos(s * angle) * x + np.sin(s * angle) * tangent
    path[-1] = y
    return path, bool((vague & (cosine < 0)).any())


def smooth_moves(steps: int) -> Float[np.ndarray, "k k"]:
    """S (K−1 × K−1) such that displacements Sz of the times between have ∫|d/ds Sz|² ds = |z|²: sines over their
    frequencies. In the coordinates z the Hessian of the action is near b̂ times the identity, however many steps."""
    k = np.arange(1, steps)
    sines = np.sqrt(2 / steps) * np.sin(np.pi * np.outer(k, k) / steps)
    return sines / (np.sqrt(steps) * 2 * np.sin(np.pi * k / (2 * steps)))[None]
