"""Sinkhorn attention: e^{scale ⟨Qx, Ky⟩} scaled to a coupling of the cloud with itself, both marginals w.

On tokens:  P_ij = w_i w_j e^{f_i + g_j + s_ij},  Σ_j P_ij = w_i,  Σ_i P_ij = w_j,  a(x_i) = Σ_j P_ij y_j / w_i
On N(μ, Σ):  a(x) = μ + scale Σ̃ C (x − μ),  Σ̃ = L · 2(I + (I + 4HᵀH)^½)^{-1} · Lᵀ,  H = scale LᵀCᵀL,  C = KᵀQ,  Σ = LLᵀ
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Int

from jaxflow._checks import check_positive
from jaxflow._typing import Scalar
from jaxflow.attention.dense import tilt
from jaxflow.attention.pairing import AbstractPairing, Affine, check_pairing, queries
from jaxflow.errors import InputError
from jaxflow.linalg import sqrtm
from jaxflow.measures import Cloud, Gaussian


@final
class Coupling(eqx.Module):
    """How far the scaling of each head came.

    Attributes:
        g: the potential of the keys, (h, n), with Σ w_j g_j = 0; that of the queries makes the rows sum to w exactly.
        error: max_j |log(Σ_i P_ij / w_j)| before the last of the iterations, (h,).
        iterations: how many were taken, (h,).
        converged: whether the error is within the tolerance, (h,).
    """

    g: Float[Array, "h n"]
    error: Float[Array, " h"]
    iterations: Int[Array, " h"]
    converged: Bool[Array, " h"]


@final
class Sinkhorn(AbstractPairing):
    """Doubly stochastic attention: what a token receives is averaged, and every token is attended to equally.

    Terms of the logits that depend on x or on y alone are absorbed by the scaling. Hence a sees C = KᵀQ through
    x − μ only, maps μ to μ, and |L⁺(a − μ)| ≤ |L⁺(x − μ)|: Σ stays finite for all time.

    Args:
        Q, K: (h, k, d), or (k, d) for one head.
        scale: multiplies the logits.
        tolerance: on the logarithms of the column sums. Default 1e-11 in float64, 1e-4 in float32.
        max_iterations: of one pair of row and column updates. The error falls by ρ² each time, ρ < 1 the largest
            correlation between the two sides (for a Gaussian 2s/(1 + √(1 + 4s²)), s = ‖H‖₂: 0.62 at s = 1, 0.95 at 10).

    Status: a head that has not converged has NaN means, so that a solve ends with `nonfinite` and not with a wrong
    answer; `couple` says how far it came.

    Cost: O(h n²) memory and O(h n²) time per iteration on a cloud; derivatives solve one n × n system per head,
    implicitly at the fixed point, to any order. O(h d³) on a Gaussian, differentiable at every rank.

    Source: arXiv:2501.18322 (there for μ = 0 and invertible C, Σ); the form used here is derived in tests/README.md.
    """

    Q: Float[Array, "h k d"]
    K: Float[Array, "h k d"]
    scale: Scalar
    tolerance: float | None = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    blow_up = None

    def __init__(
        self, Q: Any, K: Any, scale: Any = 1.0, *, tolerance: float | None = None, max_iterations: int = 1000
    ) -> None:
        self.Q, self.K, self.scale = check_pairing(Q, K, scale)
        if tolerance is not None:
            check_positive(tolerance, "tolerance")
        if max_iterations < 1:
            raise InputError("must be at least 1", where="max_iterations", got=max_iterations)
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def couple(self, cloud: Cloud) -> Coupling:
        """Scale the kernel of every head on this cloud."""
        x = cloud.points - cloud.mean[None]
        tolerance = self.tolerance or (1e-11 if x.dtype == jnp.float64 else 1e-4)

        def head(q: Array) -> tuple[Array, tuple[Array, Array]]:
            return _scale(q @ x.T, cloud.log_w, tolerance, self.max_iterations)

        g, (error, iterations) = jax.vmap(head)(queries(self, x))
        return Coupling(g, error, iterations.astype(int), error <= tolerance)

    def means(self, cloud: Cloud) -> Float[Array, "h n d"]:
        coupling = self.couple(cloud)
        x = cloud.points - cloud.mean[None]

        def head(q: Array, g: Array) -> Array:
            return tilt(q[None], x, cloud.log_w + g, second=False).mean[0]

        means = cloud.mean[None, None] + jax.vmap(head)(queries(self, x), coupling.g)
        return jnp.where(coupling.converged[:, None, None], means, jnp.nan)

    def affine(self, gaussian: Gaussian) -> Affine:
        mu, L = gaussian.mean, gaussian.factor
        one = jnp.eye(L.shape[1], dtype=L.dtype)

        def head(Q: Array, K: Array) -> tuple[Array, Array]:
            H = self.scale * (Q @ L).T @ (K @ L)
            shrunk = L @ jnp.linalg.solve(one + sqrtm(one + 4 * H.T @ H), 2 * (K @ L).T)
            M = self.scale * shrunk @ Q
            return M, mu - M @ mu

        return Affine(*jax.vmap(head)(self.Q, self.K))


def _scale(
    s: Float[Array, "n n"], log_w: Float[Array, " n"], tolerance: float, max_iterations: int
) -> tuple[Float[Array, " n"], tuple[Scalar, Scalar]]:
    """The fixed point g of row and column updates with Σ w g = 0 (only f + g is determined), and how it was reached."""
    w = jnp.exp(log_w)

    def change(g: Array) -> Array:
        f = -logsumexp(s + (log_w + g)[None, :], axis=1)
        new = -logsumexp(s + (log_w + f)[:, None], axis=0)
        return g - (new - w @ new)

    def iterate(change: Any, g: Array) -> tuple[Array, tuple[Array, Array]]:
        def going_on(now: Any) -> Array:
            _, step, count = now
            return (jnp.max(jnp.abs(step)) > tolerance) & (count < max_iterations)

        def update(now: Any) -> Any:
            g, step, count = now
            return g - step, change(g - step), count + 1

        g, step, count = jax.lax.while_loop(going_on, update, (g, change(g), jnp.zeros((), g.dtype)))
        # The count is a float: custom_root asks auxiliary results for tangents.
        return g, (jnp.max(jnp.abs(step)), count)

    def tangent(linear: Any, y: Array) -> Array:
        return jnp.linalg.solve(jax.vmap(linear, out_axes=1)(jnp.eye(y.shape[0], dtype=y.dtype)), y)

    return jax.lax.custom_root(change, jnp.zeros_like(log_w), iterate, tangent, has_aux=True)
