"""The cheapest way from one Gaussian to another, the Bures–Wasserstein geodesic, as linear layers in time.

    L_s = (1 − s)L₀ + s L₁R,   μ_s = (1 − s)μ₀ + s μ₁,   s = t/t₁,   R = argmin |L₀ − L₁R| over orthogonal R
    A(t) = (L₁R − L₀) L_s⁺ / t₁,   b(t) = (μ₁ − μ₀)/t₁ − A(t) μ_s
At full rank T = L₁R L₀^{-1} is the optimal transport map and A(t) = (T − I)((1 − s)I + sT)^{-1}/t₁.
"""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._checks import check_positive
from jaxflow._typing import Real
from jaxflow.control.reachability import check_reachable
from jaxflow.linalg import polar
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.schedules import AbstractDeterministic


@final
class Geodesic(AbstractDeterministic):
    """The schedule behind `geodesic`: where it starts, and how far mean and factor move."""

    start: Gaussian
    change: tuple[Array, Array]
    t1: float = eqx.field(static=True)
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def gaussian_at(self, t: Real) -> Gaussian:
        """N(μ_s, L_s L_sᵀ) at time t."""
        s = jnp.asarray(t, self.start.mean.dtype) / self.t1
        dmu, dL = self.change
        return Gaussian(self.start.mean + s * dmu, self.start.factor + s * dL)

    def at(self, t: Real, state: None = None) -> Layer:
        now = self.gaussian_at(t)
        dmu, dL = self.change
        A = dL @ jnp.linalg.pinv(now.factor) / self.t1
        return Layer(A=A, b=dmu / self.t1 - A @ now.mean)

    def piece(self, i: Array | int) -> "Geodesic":
        return self


def geodesic(start: Gaussian, target: Gaussian, *, t1: float = 1.0) -> Geodesic:
    """The linear layers A(t), b(t) that carry start to target with the least kinetic energy, W₂²/t₁.

    A(t) = (L₁R − L₀)L_s⁺/t₁ (at full rank (T − I)((1 − s)I + sT)^{-1}/t₁), b(t) = (μ₁ − μ₀)/t₁ − A(t)μ_s, s = t/t₁.

    Args:
        start, target: Gaussians of one rank r, means (d,), factors (d, r), 1 ≤ r ≤ d.
        t1: the horizon.

    Returns:
        A smooth schedule on [0, t1]; its `gaussian_at(t)` is where the flow is, in closed form.

    Raises:
        UnreachableError: ranks or dimensions differ. InputError: a horizon ≤ 0.

    Any rank: L₀ᵀL_s = (1 − s)L₀ᵀL₀ + s(L₀ᵀΣ₁L₀)^½ is positive definite before s = 1, so that L_s never loses rank. No
    layers of any kind, attention included, spend less (`kinetic_energy`). Differentiable where L₁ᵀL₀ is invertible.
    Exact to about ε·cond(L). Cost O(d r²) to build and per evaluation.
    Source: arXiv:2606.07600; R. McCann, Adv. Math. 128 (1997) 153.
    """
    check_reachable(start, target, "ABVb")
    check_positive(t1, "t1")
    L0, L1 = start.factor, target.factor
    R = polar(L1.T @ L0)
    return Geodesic(start=start, change=(target.mean - start.mean, L1 @ R - L0), t1=float(t1))
