"""Layers that are trigonometric polynomials of depth: u(t) = c₀ + Σ_m c_m cos(2πmt/t₁) + s_m sin(2πmt/t₁)."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_positive, check_shape
from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer, make_layer
from jaxflow.weights.schedules import AbstractDeterministic


def waves(s: Real, modes: int, dtype: Any) -> Float[Array, " n"]:
    """(1, cos 2πs, sin 2πs, cos 4πs, sin 4πs, …), n = 2·modes + 1."""
    angles = 2 * np.pi * jnp.arange(1, modes + 1, dtype=dtype) * jnp.asarray(s, dtype)
    pairs = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1).reshape(-1)
    return jnp.concatenate([jnp.ones(1, dtype), pairs])


@final
class Fourier(AbstractDeterministic):
    """Every matrix a trigonometric polynomial of depth with period t₁: c₀ + Σ_m c_m cos(2πmt/t₁) + s_m sin(2πmt/t₁).

    Args:
        D, B, V, A, b: as for `Constant`, each with a leading axis of length 2m+1: c₀, c₁, s₁, c₂, s₂, …
        mass: c_h, (h,), which do not change; default as for `Constant`.
        t1: the period.

    Raises:
        InputError: as for `Constant`; or an even number of coefficients; or t1 that is not positive.

    Smooth: adaptive solvers need no restarts. ∫₀^{t₁}|u|² dt = t₁(|c₀|² + ½Σ|c_m|² + |s_m|²).
    """

    layers: Layer
    t1: float = eqx.field(static=True)
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def __init__(
        self,
        *,
        D: Any = None,
        B: Any = None,
        V: Any = None,
        A: Any = None,
        b: Any = None,
        mass: Any = None,
        t1: float,
    ):
        check_positive(t1, "t1")
        layers = make_layer(D=D, B=B, V=V, A=A, b=b, lead=1)
        n = jax.tree.leaves(layers)[0].shape[0]
        if n % 2 == 0:
            raise InputError("must be odd in number", where="Fourier", got=f"{n} coefficients", expected="2m + 1")
        if layers.mass is not None:
            held = layers.mass[0] if mass is None else as_float(mass, "mass", layers.dtype)
            check_shape(held, (layers.heads,), "mass")
            layers = eqx.tree_at(lambda layer: layer.mass, layers, jnp.zeros_like(layers.mass).at[0].set(held))
        elif mass is not None:
            raise InputError("belongs to heads, and there are none", where="mass", fix="give D, or B and V")
        self.layers, self.t1, self.edges = layers, float(t1), ()

    @property
    def modes(self) -> int:
        """m, the number of frequencies."""
        return jax.tree.leaves(self.layers)[0].shape[0] // 2

    def at(self, t: Real, state: None = None) -> Layer:
        dtype = self.layers.dtype
        basis = waves(jnp.asarray(t, dtype) / self.t1, self.modes, dtype)
        return jax.tree.map(lambda c: jnp.tensordot(basis, c, 1), self.layers)

    def piece(self, i: Any) -> "Fourier":
        return self
