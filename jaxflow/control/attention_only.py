"""C3, attention only: for any generator M(t), V = M and B = Σ⁺(t) give VΣBΣ = MΣ, so that A is not needed.

The mean goes where it is wanted with b = μ̇_ref − (A + V + VΣB)μ_ref; here μ̇_ref = Mμ + b of the linear layers replaced.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxflow._typing import Real
from jaxflow.control.geodesic import Geodesic
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.weights import AbstractSchedule, Layer, Piecewise
from jaxflow.weights.schedules import AbstractDeterministic


def attention_only(weights: AbstractSchedule, start: Gaussian) -> "AttentionOnly":
    """C3: attention that moves N(start) exactly as these linear layers do, with A = 0.

    V = M, B = Σ⁺(t) gives VΣBΣ = MΣ for the generator M = A of the given layers; b makes up for the mean, which
    attention moves by (V + VΣB)μ where the linear layer moves it by Mμ.

    Args:
        weights: layers with A and b alone, such as those of C1 and C2 or the geodesic.
        start: the Gaussian they start from, of any rank.

    Returns:
        A schedule with the same edges; each layer has B, V (1, d, d) and b (d,), and no A. Σ(t) is known in closed form
        along constant linear layers and along the geodesic: nothing is integrated.

    Raises:
        InputError: the layers are neither a Piecewise of linear layers nor a `geodesic`.

    Exact for this start only: the layers know its covariance. Cost: one matrix exponential and one pseudo-inverse per
    evaluation. Source: arXiv:2606.07600, steering by attention.
    """
    return AttentionOnly(weights=weights, start=start)


@final
class AttentionOnly(AbstractDeterministic):
    """The schedule behind `attention_only`."""

    weights: Any
    start: Gaussian
    edges: tuple[float, ...] = eqx.field(static=True)
    before: Any

    def __init__(self, weights: Any, start: Gaussian) -> None:
        if not isinstance(weights, Piecewise | Geodesic):
            raise InputError(
                "have no known path", where="weights", got=type(weights).__name__,
                expected="a Piecewise of linear layers, or the geodesic",
            )  # fmt: skip
        self.weights, self.start, self.edges = weights, start, weights.edges
        self.before = None
        if isinstance(weights, Piecewise):
            if weights.layers.B is not None or weights.layers.A is None:
                raise InputError("must be linear", where="weights", expected="layers with A and b, without B and V")
            self.before = _path(weights, start)

    def at(self, t: Real, state: None = None) -> Layer:
        t = jnp.asarray(t, self.start.mean.dtype)
        i = jnp.searchsorted(jnp.asarray(self.edges[1:-1], t.dtype), t, side="right") if self.edges else 0
        return _replaced(self, i, t)

    def piece(self, i: Any) -> "AttentionPiece":
        return AttentionPiece(whole=self, i=jnp.asarray(i))


@final
class AttentionPiece(AbstractDeterministic):
    """One piece of an AttentionOnly."""

    whole: AttentionOnly
    i: Array
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def at(self, t: Real, state: None = None) -> Layer:
        return _replaced(self.whole, self.i, jnp.asarray(t, self.whole.start.mean.dtype))

    def piece(self, i: Any) -> "AttentionPiece":
        return self


def _path(weights: Piecewise, start: Gaussian) -> Gaussian:
    """The Gaussians at the beginning of every piece, with a leading axis."""
    now, out = start, []
    durations = np.diff(np.asarray(weights.edges))
    for i, h in enumerate(durations):
        out.append(now)
        now = _linear_step(jax.tree.map(lambda x, i=i: x[i], weights.layers), now, h)
    return jax.tree.map(lambda *x: jnp.stack(x), *out)


def _linear_step(layer: Layer, now: Gaussian, h: Any) -> Gaussian:
    """Exactly h further under ẋ = Ax + b."""
    assert layer.A is not None
    d = now.dim
    b = jnp.zeros(d, now.mean.dtype) if layer.b is None else layer.b
    M = jnp.zeros((d + 1, d + 1), now.mean.dtype).at[:d, :d].set(layer.A).at[:d, d].set(b)
    E = jax.scipy.linalg.expm(h * M)
    return Gaussian(E[:d, :d] @ now.mean + E[:d, d], E[:d, :d] @ now.factor)


def _replaced(schedule: AttentionOnly, i: Any, t: Array) -> Layer:
    """V = M, B = Σ⁺, b = b_ref + Mμ − (V + VΣB)μ at time t."""
    weights = schedule.weights
    if schedule.before is None:
        now, layer = weights.gaussian_at(t), weights.at(t)
    else:
        before, layer = (jax.tree.map(lambda x: x[i], x) for x in (schedule.before, weights.layers))
        now = _linear_step(layer, before, t - jnp.asarray(schedule.edges, t.dtype)[i])
    M, mu = layer.A, now.mean
    # Σ⁺ = (L⁺)ᵀL⁺; V Σ B = M P with the projector P = L L⁺ on the range.
    inverse = jnp.linalg.pinv(now.factor)
    P = now.factor @ inverse
    b = jnp.zeros_like(mu) if layer.b is None else layer.b
    b = b + M @ mu - (M + M @ P) @ mu
    return Layer(B=(inverse.T @ inverse)[None], V=M[None], b=b, mass=jnp.ones(1, mu.dtype))
