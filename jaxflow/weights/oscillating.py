"""Tied heads driven by a periodic matrix: Ḋ_h = F(t + φ_h) − D_h, in closed form.

F(τ) = F₀ + Σ_k C_k cos(ω_k τ + ψ_k) entrywise, and for each harmonic

    ∫₀ᵗ e^{−(t−u)} cos(ωu + ψ) du = [cos(ωt+ψ) + ω sin(ωt+ψ) − e^{−t}(cos ψ + ω sin ψ)] / (1 + ω²)
"""

from typing import Any, Literal, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer, make_layer
from jaxflow.weights.schedules import AbstractDeterministic

SINE = -np.pi / 2
"""sin τ = cos(τ + SINE)."""


def harmonics(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """F₀, C, ω, ψ, each (d, d), of F(τ) = F₀ + C cos(ω τ + ψ): the forcing of arXiv:2605.18870, §5.

    d = 3: [[2+1.5cos τ, sin 2τ, sin τ], [sin 2τ, 2+1.5sin τ, cos 2τ], [sin τ, cos 2τ, 2+1.5cos(τ+π/4)]].
    d = 2: [[2+1.5cos τ, sin 2τ], [sin 2τ, 2−1.5cos τ]].
    d ≥ 4: diagonal 2 + 1.5cos(τ + 2πi/d); off-diagonal pair p: sin(2τ + 2πp/(d(d−1)/2)).
    """
    F0, C, omega, psi = 2 * np.eye(d), np.ones((d, d)), np.full((d, d), 2.0), np.full((d, d), SINE)
    np.fill_diagonal(C, 1.5)
    np.fill_diagonal(omega, 1.0)
    if d == 2:
        np.fill_diagonal(psi, [0, np.pi])
    elif d == 3:
        np.fill_diagonal(psi, [0, SINE, np.pi / 4])
        omega[0, 2] = omega[2, 0] = 1.0
        psi[1, 2] = psi[2, 1] = 0.0
    else:
        np.fill_diagonal(psi, 2 * np.pi * np.arange(d) / d)
        i, j = np.triu_indices(d, 1)
        psi[i, j] = psi[j, i] = SINE + 2 * np.pi * np.arange(len(i)) / len(i)
    return F0, C, omega, psi


@final
class Oscillating(AbstractDeterministic):
    """Heads that never settle: the non-integrable regime of arXiv:2605.18870, §5.

    Args:
        initial: D(0), (h, d, d), symmetric, d ≥ 2.
        phase: "locked" (all φ_h = 0) or "spread" (φ_h = 2πh/H). The paper's claim that the upper gradient does not
            decay in the number of heads holds for locked phases only; with spread phases it decays.
        A, b, mass: constant feed-forward and head masses, as for `Constant`.
    """

    initial: Layer
    phase: Literal["locked", "spread"] = eqx.field(static=True)
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        *,
        initial: Any,
        phase: Literal["locked", "spread"] = "locked",
        A: Any = None,
        b: Any = None,
        mass: Any = None,
    ):
        self.initial = make_layer(D=initial, A=A, b=b, mass=mass)
        if phase not in ("locked", "spread"):
            raise InputError("is not known", where="phase", got=phase, expected='"locked" or "spread"')
        if self.initial.dim < 2:
            raise InputError("is too small", where="initial", got="d = 1", expected="d ≥ 2")
        self.phase, self.edges = phase, ()

    def forcing(self, t: Real) -> Float[Array, "h d d"]:
        """F(t + φ_h)."""
        F0, C, omega, psi = self._harmonics()
        return F0 + C * jnp.cos(omega * t + psi)

    def at(self, t: Real, state: None = None) -> Layer:
        assert self.initial.B is not None
        F0, C, omega, psi = self._harmonics()
        t = jnp.asarray(t, self.initial.dtype)
        decay = jnp.exp(-t)
        now = jnp.cos(omega * t + psi) + omega * jnp.sin(omega * t + psi)
        then = jnp.cos(psi) + omega * jnp.sin(psi)
        D = decay * self.initial.B - F0 * jnp.expm1(-t) + C * (now - decay * then) / (1 + omega**2)
        return eqx.tree_at(lambda layer: (layer.B, layer.V), self.initial, (D, D))

    def piece(self, i: Any) -> "Oscillating":
        return self

    def _harmonics(self) -> tuple[Array, Array, Array, Array]:
        """F₀, C, ω, each (1, d, d), and the head's own phase ψ_h = ψ + ω φ_h, (h, d, d)."""
        h = self.initial.heads
        phi = 2 * np.pi * np.arange(h) / h if self.phase == "spread" else np.zeros(h)
        F0, C, omega, psi = harmonics(self.initial.dim)
        shifted = psi + omega * phi[:, None, None]
        F0, C, omega, shifted = (jnp.asarray(x, self.initial.dtype) for x in (F0[None], C[None], omega[None], shifted))
        return F0, C, omega, shifted
