"""The moment flow, equation (1.1) of arXiv:2606.07600, in factor form Σ = L Lᵀ:

μ̇ = (A + Σ_h c_h V_h + Σ_h c_h V_h Σ B_h) μ + b,      L̇ = K L,      K = A + Σ_h c_h V_h Σ B_h
"""

from typing import Any, Literal, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real, Scalar
from jaxflow.errors import InputError
from jaxflow.linalg import product
from jaxflow.measures import Gaussian
from jaxflow.measures.single import check_single_gaussian
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.layer import check_direction, sign_of


@final
class Terms(eqx.Module):
    """What the velocity was computed from: Q = Σ_h c_h V_h Σ B_h, K = A + Q, and Σ."""

    Q: Float[Array, "d d"]
    K: Float[Array, "d d"]
    Sigma: Float[Array, "d d"]


def time_to_blow_up(terms: Terms, *, power: int) -> Scalar:
    """p tr Σ / (2 tr QΣ): near blow-up Σ ≈ R/(t* − t)^p, and only the attention part Q can bring it about."""
    growth = 2 * jnp.sum(terms.Q * terms.Sigma)
    size = power * jnp.trace(terms.Sigma)
    return jnp.where(growth > 0, size / jnp.where(growth > 0, growth, 1), jnp.inf)


@final
class MomentFlow(AbstractFlow):
    """Mean and covariance of a Gaussian cloud of tokens under attention and affine feed-forward.

    Exact for infinitely many tokens: exponential tilting of N(μ, Σ) gives a(x) = μ + ΣBx, so that the Gaussian stays
    one. For finitely many it describes them well while κ_eff = ‖LᵀBL‖₂ ≲ 1 (see `gaussian.moments`). Because L̇ = KL,
    the rank is constant and Σ stays positive semidefinite, exactly. Cost per evaluation O(h d³).

    Args:
        weights: any schedule of layers.
        direction: for tied heads only, "descend" (V = −D) or "ascend" (V = D).

    Status: with V and B of one sign Σ can become infinite in finite time; the solve then ends with `blow_up`.

    Source: arXiv:2606.07600, equation (1.1).
    """

    weights: AbstractSchedule
    direction: Literal["descend", "ascend"] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_direction(self.weights.at(0.0), self.direction)

    def check(self, state: Any) -> None:
        check_single_gaussian(state)
        d = self.weights.at(0.0).dim
        if state.dim != d:
            raise InputError(
                "lives in another dimension than the weights", where="state", got=state.dim, expected=f"d = {d}"
            )

    def split(self, state: Gaussian) -> tuple[tuple[Array, Array], None]:
        return (state.mean, state.factor), None

    def join(self, y: tuple[Array, Array], rest: None) -> Gaussian:
        return Gaussian(*y)

    @property
    def retraction(self) -> None:
        return None

    def field(self, t: Real, state: Gaussian, layer: Layer) -> tuple[tuple[Array, Array], Terms]:
        mu, L = state.mean, state.factor
        Sigma = product(L, L.T)
        Q = jnp.zeros_like(Sigma)
        dmu = jnp.zeros_like(mu)
        if layer.B is not None and layer.V is not None and layer.mass is not None:
            cV = sign_of(self.direction) * layer.mass[:, None, None] * layer.V
            Q = product(product(cV, Sigma[None]), layer.B).sum(0)
            dmu = cV.sum(0) @ mu
        K = Q if layer.A is None else layer.A + Q
        dmu = dmu + K @ mu
        if layer.b is not None:
            dmu = dmu + layer.b
        return (dmu, product(K, L)), Terms(Q, K, Sigma)

    def time_left(self, state: Gaussian, terms: Terms) -> Scalar:
        """`time_to_blow_up` with Σ ≈ R/(t* − t)."""
        return time_to_blow_up(terms, power=1)
