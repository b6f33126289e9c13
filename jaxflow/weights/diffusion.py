"""Tied heads under any drift and noise:  dD = f(t, D) dt + g(t, D) dW_sym (Itô), dW_sym = √dt (Z + Zᵀ)/2.

A step of length h is Euler–Maruyama's:

    D ← D + h f(t, D) + g(t, D) √h (Z + Zᵀ)/2
"""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_symmetric, is_concrete
from jaxflow._typing import PRNGKey, Real
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer, make_layer
from jaxflow.weights.random import AbstractRandom, symmetric_normal


@final
class Diffusion(AbstractRandom):
    """Heads that follow a stochastic differential equation given by its drift and its noise.

    Inside a run of tokens (`Euler()`, dt) they take Euler–Maruyama's steps, of strong order 1 if g does not depend on D
    and ½ otherwise. `solve.sample_weights` draws one path with finer steps of its own.

    Args:
        initial: D(0), (h, d, d), symmetric.
        drift: f, (t, D) ↦ (h, d, d), symmetric for symmetric D. May be an `eqx.Module` with parameters.
        noise: g, (t, D) ↦ one number (), one for each head (h,), or one for each entry, (h, d, d) and symmetric.
            `particles.balance` needs one of the first two.
        A, b, mass: constant feed-forward and head masses, as for `Constant`.

    Raises:
        InputError: f or g of another shape or another precision than D, or not symmetric at t = 0.

    For dD = (D̄ − D)dt + σ dW_sym take `OrnsteinUhlenbeck`, which is exact.
    """

    initial: Layer
    f: Callable[[Any, Any], Any]
    g: Callable[[Any, Any], Any]
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        *,
        initial: Any,
        drift: Callable[[Any, Any], Any],
        noise: Callable[[Any, Any], Any],
        A: Any = None,
        b: Any = None,
        mass: Any = None,
    ) -> None:
        self.initial = make_layer(D=initial, A=A, b=b, mass=mass)
        self.f, self.g, self.edges = drift, noise, ()
        D = self.begin(None)
        for name, value, shapes in (
            ("drift", self.f, [D.shape]),
            ("noise", self.g, [(), D.shape[:1], D.shape]),
        ):
            found = jax.eval_shape(lambda D, value=value: jnp.asarray(value(jnp.zeros((), D.dtype), D)), D)
            if found.shape not in shapes or found.dtype != D.dtype:
                raise InputError(
                    "does not fit the heads",
                    where=name,
                    got=f"{found.shape} {found.dtype}",
                    expected=f"{' or '.join(str(shape) for shape in shapes)} {D.dtype}",
                )
            if is_concrete(D) and len(found.shape) == 3:
                now = jnp.asarray(value(jnp.zeros((), D.dtype), D))
                check_symmetric(now, name, "heads stay symmetric only under symmetric drift and noise")

    def drift(self, t: Real, state: Any = None) -> Float[Array, "h d d"]:
        """f(t, D)."""
        D = self.begin(None) if state is None else state
        return self.f(jnp.asarray(t, D.dtype), D)

    def amplitude(self, t: Real, state: Any = None) -> Float[Array, "*g"]:
        D = self.begin(None) if state is None else state
        return jnp.asarray(self.g(jnp.asarray(t, D.dtype), D), D.dtype)

    def advance(
        self, state: Float[Array, "h d d"], h: Real, key: PRNGKey | None, t: Real = 0.0
    ) -> Float[Array, "h d d"]:
        assert key is not None
        h = jnp.asarray(h, state.dtype)
        g = over_heads(self.amplitude(t, state), state)
        return state + h * self.drift(t, state) + jnp.sqrt(h) * g * symmetric_normal(key, state.shape, state.dtype)


def over_heads(g: Float[Array, "*g"], D: Float[Array, "h d d"]) -> Float[Array, "h d d"]:
    """g for every entry of every head."""
    return jnp.broadcast_to(g.reshape(g.shape + (1,) * (3 - g.ndim)), D.shape)
