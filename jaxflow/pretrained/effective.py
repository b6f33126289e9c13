"""Which layer (A, B, V, b) of equation (1.1) is a trained block, for tokens of mean μ and covariance Σ?

    ẋ = A x + b + Σ_h V_h a_h(x),     a_h(x) = μ + Σ B_h x,     one block = one step of length 1

Layer norm is affine as far as the tokens' variances are equal, LN(x) ≈ M x + c. With it the heads can be read off:

    q_i = Q_h x_i + q_h, k_j = K_h x_j + k_h    ⟹    logits ⟨B_h x_i + t_h, x_j⟩ + const
    B_h = K_hᵀQ_h/√k, t_h = K_hᵀq_h/√k
    attention(x) ≈ Σ_h V_h (μ + Σ(B_h x + t_h)) + o,            V_h = W_O,h W_V,h M

and what the block does afterwards, x⁺ ≈ T (x + attention(x)) + t, is fitted by least squares over the tokens. Together

    A = T − 1,     V_h → T V_h,     b = T (o + Σ_h V_h Σ t_h) + t.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.gaussian import MomentFlow, kappa_eff
from jaxflow.measures import Cloud, Gaussian
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.departures import Fitted, fit
from jaxflow.pretrained.parts import LayerNorm
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Constant, Layer


@final
class EffectiveLayer(eqx.Module):
    """A block as a layer of (1.1), and how far it is one.

    Attributes:
        layer: (A, B, V, b); one Euler step of length 1 is the block.
        kappa: κ of every head, ‖Σ^½ B_h Σ^½‖₂, (h,): finitely many tokens follow (1.1) while it is below about 1.
        tilt: θ, how far attention tilts the tokens, in standard deviations, (h,):
            θ² = ‖Σ^½ B_h Σ^½‖_F² + |Σ^½(B_h μ + t_h)|², the mean over tokens of |Σ^½(B_h x + t_h)|². Weights
            e^{⟨θ, z⟩} of n normal z are worth n e^{−θ²} equal ones, so that n tokens follow (1.1) while θ² < ln n; in
            high dimension this asks for more than κ ≲ 1.
        self_weight: tr(B_h Σ) − θ²/2, (h,): a token's weight for itself is about e^{that}/n, so that above ln n tokens
            attend to themselves alone. Σ's many small eigenvalues add up in it.
        attention: the share of the covariance of attention's output that (1.1) explains: 1 − |y − ŷ|²/|y|², y centred.
        gain: the slope of attention's output against that of (1.1); 1 if (1.1) holds.
        affine: the share of the change x⁺ − x that the best affine map of x explains: no choice of layer explains more.
        mean, covariance: after the block by (1.1), from μ and Σ before it.
        missed: W₂(N by (1.1), N after) / W₂(N before, N after), N with the tokens' moments: the share of the way that
            (1.1) misses; 0 is perfect, and to say that nothing moves has 1.
    """

    layer: Layer
    kappa: Float[Array, " h"]
    tilt: Float[Array, " h"]
    self_weight: Float[Array, " h"]
    attention: Scalar
    gain: Scalar
    affine: Scalar
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    missed: Scalar


def effective_layer(block: Block, x: Float[Array, "p n d"]) -> EffectiveLayer:
    """The layer of (1.1) that a trained block is for these tokens.

    Args:
        block: with attention that does not depend on positions.
        x: p sequences of n tokens that enter it. More than d tokens in all.

    Raises:
        InputError: attention depends on positions (ModernBERT), so that no one B describes it.

    Cost: O(h d³ + p n² d).

    Source: equation (1.1) of arXiv:2606.07600; the rest derived above.
    """
    start = _gaussian(_flat(x))
    mu, Sigma = start.mean, start.covariance
    heads = _read_off(block, x, mu, Sigma)
    output = jax.lax.map(lambda y: block.attention(y if block.post else _normed(block.norm1, y)), x)
    output = output if block.scale1 is None else block.scale1[None, None] * output
    ideal = _flat(x - mu[None, None]) @ heads.slope.T + heads.at_mean[None]
    after = jax.lax.map(block, x)
    T, t = _least_squares(_flat(x + output), _flat(after))
    # What (1.1) has as V a(x) + b: at the mean a = μ + Σ B μ.
    V = jnp.einsum("ij,hjk->hik", T, heads.V)
    taken = jnp.einsum("hij,j->i", V, mu) + jnp.einsum("hij,jk,hkl,l->i", V, Sigma, heads.B, mu)
    b = T @ heads.at_mean + t - taken
    layer = Constant(B=heads.B, V=V, A=T - jnp.eye(len(mu), dtype=mu.dtype), b=b).at(0.0)
    (dmu, dL), _ = MomentFlow(Constant(B=layer.B, V=layer.V, A=layer.A, b=layer.b)).field(0.0, start, layer)
    predicted, end = Gaussian(mu + dmu, start.factor + dL), _gaussian(_flat(after))
    kappa = jax.lax.map(lambda B: kappa_eff(Layer(B=B[None]), start), heads.B)
    theta2 = jnp.sum((start.factor.T @ heads.B @ start.factor) ** 2, axis=(1, 2)) + heads.constant_tilt
    y, change = _flat(output), _flat(after - x)
    slope, offset = _least_squares(_flat(x), change)
    return EffectiveLayer(
        layer,
        kappa,
        jnp.sqrt(theta2),
        jnp.einsum("hij,ji->h", heads.B, Sigma) - theta2 / 2,
        _explained(y, ideal),
        jnp.sum(_centred(y) * _centred(ideal)) / jnp.sum(_centred(ideal) ** 2),
        _explained(change, _flat(x) @ slope.T + offset[None]),
        predicted.mean,
        predicted.covariance,
        wasserstein_gaussian(predicted, end) / wasserstein_gaussian(start, end),
    )


@final
class _Heads(eqx.Module):
    """B_h, V_h, the slope Σ_h V_h Σ B_h of attention's output, its value at x = μ, and |Σ^½(B_h μ + t_h)|²."""

    B: Float[Array, "h d d"]
    V: Float[Array, "h d d"]
    slope: Float[Array, "d d"]
    at_mean: Float[Array, " d"]
    constant_tilt: Float[Array, " h"]


def _read_off(block: Block, x: Float[Array, "p n d"], mu: Float[Array, " d"], Sigma: Float[Array, "d d"]) -> _Heads:
    d = len(mu)
    M, c = jnp.eye(d, dtype=mu.dtype), jnp.zeros_like(mu)
    if not block.post and block.norm1 is not None:
        M, c = _affine(block.norm1, x)
    heads = block.attention.heads_at(M, c)
    scale = jnp.ones(d, mu.dtype) if block.scale1 is None else block.scale1
    V = scale[None, :, None] * heads.V
    at_mean = jnp.einsum("hij,j->hi", heads.B, mu) + heads.tilt
    return _Heads(
        heads.B,
        V,
        jnp.einsum("hij,jk,hkl->il", V, Sigma, heads.B),
        jnp.einsum("hij,hj->i", V, mu[None] + at_mean @ Sigma) + scale * heads.constant,
        jnp.einsum("hi,ij,hj->h", at_mean, Sigma, at_mean),
    )


def _normed(norm: LayerNorm | None, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return x if norm is None else norm(x)


def _affine(norm: LayerNorm, x: Float[Array, "p n d"]) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """(M, c) of the norm with the tokens' mean of 1/√(var + ε)."""
    inverse = jnp.mean(1 / jnp.sqrt(jnp.var(x, axis=-1) + norm.eps))
    return norm.affine(1 / inverse**2 - norm.eps)


def _flat(x: Float[Array, "p n d"]) -> Float[Array, "m d"]:
    return x.reshape(-1, x.shape[-1])


def _gaussian(x: Float[Array, "m d"]) -> Gaussian:
    """N(mean, covariance) of the tokens."""
    cloud = Cloud(x)
    return fit(cloud.mean, cloud.covariance).gaussian


def _centred(y: Float[Array, "m d"]) -> Float[Array, "m d"]:
    return y - jnp.mean(y, axis=0, keepdims=True)


def _explained(y: Float[Array, "m d"], found: Float[Array, "m d"]) -> Scalar:
    """1 − |y − ŷ|²/|y|², both centred."""
    return 1 - jnp.sum(_centred(y - found) ** 2) / jnp.sum(_centred(y) ** 2)


def _least_squares(x: Float[Array, "m d"], y: Float[Array, "m d"]) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """(T, t) with T x + t nearest to y in the mean; T vanishes across the range of x."""
    mean = jnp.mean(x, axis=0)
    fitted: Fitted = fit(mean, _centred(x).T @ _centred(x) / x.shape[0])
    kept = fitted.eigenvalues > 0
    inverse = jnp.where(kept, 1 / jnp.where(kept, fitted.eigenvalues, 1.0), 0.0)
    z = fitted.coordinates(x)
    T = (_centred(y).T @ z / x.shape[0] * inverse[None]) @ fitted.eigenvectors.T
    return T, jnp.mean(y, axis=0) - T @ mean
