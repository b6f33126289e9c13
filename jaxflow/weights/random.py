"""Tied heads with noise of their own:  dD = f(t, D) dt + g(t, D) dW_sym (Itô), dW_sym = √dt (Z + Zᵀ)/2."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float
from jaxflow._typing import PRNGKey, Real
from jaxflow.weights.layer import Layer
from jaxflow.weights.schedules import AbstractSchedule, Sampled


def symmetric_normal(key: PRNGKey, shape: tuple[int, ...], dtype: Any) -> Array:
    """(Z + Zᵀ)/2."""
    return symmetric_part(jax.random.normal(key, shape, dtype))


def symmetric_part(Z: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """(Z + Zᵀ)/2."""
    return (Z + jnp.swapaxes(Z, -1, -2)) / 2


class AbstractRandom(AbstractSchedule):
    """Heads whose random state is D itself, (h, d, d), and whose feed-forward part and masses rest."""

    initial: eqx.AbstractVar[Layer]

    random = True

    @abc.abstractmethod
    def amplitude(self, t: Real, state: Any = None) -> Float[Array, "*g"]:
        """g(t, D): one number (), one for each head (h,), or one for each entry (h, d, d)."""

    def begin(self, key: PRNGKey | None) -> Float[Array, "h d d"]:
        assert self.initial.B is not None
        return self.initial.B

    def at(self, t: Real, state: Any = None) -> Layer:
        """The layer whose heads are `state` (the random state of a running solve; at t = 0 the initial heads)."""
        D = self.begin(None) if state is None else state
        return eqx.tree_at(lambda layer: (layer.B, layer.V), self.initial, (D, D))

    def piece(self, i: Any) -> "AbstractRandom":
        return self

    def shock(self, t: Real, before: Array, after: Array, h: Real) -> Float[Array, "h d d"]:
        """What of a step from t to t + h is noise: D(t + h) − D(t) − h f(t, D(t))."""
        return after - before - h * self.drift(t, before)

    def sample(self, key: PRNGKey, ts: Float[Array, " m"]) -> Sampled:
        """One path on increasing times ts (ts[0] is the time of `initial`), as a deterministic schedule.

        Step i uses `fold_in(key, i)`, as a fixed-step solve with the same key does. The steps are those of ts.
        """
        ts = as_float(ts, "ts")

        def step(D: Array, k: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            i, t, h = k
            D = self.advance(D, h, jax.random.fold_in(key, i), t)
            return D, D

        D0 = self.begin(None)
        _, Ds = jax.lax.scan(step, D0, (jnp.arange(ts.shape[0] - 1), ts[:-1], jnp.diff(ts)))
        return path_of(self, ts, jnp.concatenate([D0[None], Ds]))


def path_of(weights: AbstractRandom, ts: Float[Array, " m"], D: Float[Array, "m h d d"]) -> Sampled:
    """Recorded heads as a deterministic schedule."""
    layers = jax.tree.map(lambda x: jnp.broadcast_to(x, (ts.shape[0], *x.shape)), weights.initial)
    return Sampled(ts=ts, layers=eqx.tree_at(lambda layer: (layer.B, layer.V), layers, (D, D)))
