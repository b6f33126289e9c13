"""How fast do small waves on the uniform density grow, and how many clusters do they announce?

Linearised at the uniform density, ρ = (1 + ε Y_l)/|S|, the equation multiplies ε by e^{λ_l t}:

    λ_l = l(l+d−2) [Σ_h c_h v_h f_h a_l(β_h)/β_h − 1/κ]      for heads B_h = β_h I, V_h = v_h I

    a_l(β) = Γ(d/2) (2/β)^{d/2−1} I_{l+d/2−1}(β)             the mean of e^{βs} P_l(s), Funk and Hecke
    f_h = 1 (unnormalized),  1/a_0(β_h) (softmax),  mean_h 1/a_0(β_h) (steepest)

Tied heads D_h = β_h I have v_h = ∓β_h, c_h = 1/H; infinitely many heads κ_l in the place of the sum, see `infinite`.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln, hyp0f1

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError
from jaxflow.meanfield.infinite import multipliers
from jaxflow.particles import AbstractLimit
from jaxflow.particles.flow import Law
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction, check_direction, sign_of


def growth_rates(
    heads: Layer | AbstractLimit,
    *,
    dim: int | None = None,
    degree: int,
    law: Law = "softmax",
    direction: Direction | None = None,
    kappa: float | None = None,
    t: float = 0.0,
) -> np.ndarray:
    """λ_l for l = 0..degree, in closed form.

    Args:
        heads: a layer whose B_h, V_h and A are multiples of the identity, without b: only then is the uniform density
            at rest for all laws. Or the kernel of infinitely many heads.
        dim: d of a kernel; a layer has its own. Any d ≥ 2 for layers, 2 or 3 for kernels.
        law, direction, kappa: as for `DensityFlow`. Kernels know the law "unnormalized" alone.
        t: the time of a kernel.

    Raises:
        InputError: other heads, the law "hardmax", a direction that does not fit.

    Source: arXiv:2410.06833 for one head; the laws and several heads are derived in tests/README.md.
    """
    if isinstance(heads, AbstractLimit):
        if dim not in (2, 3):
            raise InputError("is needed with a kernel", where="dim", got=dim, expected="2 or 3")
        if law != "unnormalized" or direction not in ("descend", "ascend"):
            raise InputError(
                "do not fit a kernel of infinitely many heads",
                where="law, direction",
                got=f"{law}, {direction}",
                expected='law="unnormalized" and a direction',
            )
        of_k = np.asarray(multipliers(heads, dim, degree, t)[0])
        first = np.concatenate([[0], np.cumsum([1, *(2 if dim == 2 else 2 * l + 1 for l in range(1, degree))])])
        per_degree = sign_of(direction) * of_k[first[: degree + 1]]
    else:
        if dim not in (None, heads.dim):
            raise InputError("is not that of the layer", where="dim", got=dim, expected=str(heads.dim))
        dim = heads.dim
        check_direction(heads, direction)
        c, beta, v = _scalars(heads)
        if heads.tied:
            v = sign_of(direction) * v
        factor = _factor(law, c, _transform(beta, dim, 0)[0], tied=heads.tied)
        per_degree = np.einsum("h,h,h,hl->l", c, v, factor, _transform(beta, dim, degree)[1])
    l = np.arange(degree + 1)
    rates = per_degree - (0.0 if kappa is None else 1 / kappa)
    return l * (l + dim - 2) * rates


def fastest_mode(rates: Any) -> int | None:
    """The degree that grows fastest, on S¹ the number of clusters that a uniform cloud first falls into; None if none
    grows."""
    rates = np.asarray(rates)
    best = int(np.argmax(rates))
    return best if rates[best] > 0 else None


def _factor(law: str, c: np.ndarray, a0: np.ndarray, *, tied: bool) -> np.ndarray:
    """f_h."""
    if law == "softmax":
        return 1 / a0
    if law == "unnormalized":
        return np.ones_like(a0)
    if law == "steepest" and tied:
        # The mass of tied heads is averaged away in both factors: Σ c̄/m · Σ c̄ m D a, c̄ = c/Σc.
        return np.full_like(a0, np.sum(c / a0) / np.sum(c) ** 2)
    raise InputError(
        "has no growth rates here",
        where="law",
        got=law,
        expected='"softmax", "unnormalized", or "steepest" with tied heads',
    )


def _scalars(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c_h, β_h, v_h of heads that are multiples of the identity."""
    if layer.B is None or layer.V is None or layer.mass is None:
        raise InputError("needs heads", where="heads", got="a layer of A, b only")
    parts = {"B": layer.B, "V": layer.V, **({} if layer.A is None else {"A": layer.A[None]})}
    if not all(is_concrete(X) for X in parts.values()):
        raise InputError("must be known before tracing", where="heads", got="a traced layer")
    for name, matrices in parts.items():
        X = np.asarray(matrices)
        gap = np.abs(X - X[:, :1, :1] * np.eye(layer.dim)).max()
        if gap > 1e-12 * max(1.0, np.abs(X).max()):
            raise InputError(
                "is no multiple of the identity, and the uniform density does not rest",
                where=f"heads.{name}",
                got=f"an entry off by {gap:.3g}",
                expected="βI",
                fix="linearise DensityFlow.field with jax.jacfwd about the state of interest",
            )
    if layer.b is not None and bool(np.any(np.asarray(layer.b) != 0)):
        raise InputError("moves the uniform density", where="heads.b", got=np.asarray(layer.b), expected="no b")
    return tuple(np.asarray(X, float) for X in (layer.mass, layer.B[:, 0, 0], layer.V[:, 0, 0]))  # pyright: ignore[reportReturnType]


def _transform(beta: np.ndarray, dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """a_0(β), (h,), and a_l(β)/β for l = 0..degree, (h, l), that of l = 0 set to 0:

    a_l = Γ(d/2)/Γ(l+d/2) (β/2)^l ₀F₁(l + d/2; β²/4).
    """
    l = np.arange(1, degree + 1)
    first = hyp0f1(dim / 2, beta**2 / 4)
    size = np.exp(gammaln(dim / 2) - gammaln(l + dim / 2)) / 2
    rest = size * (beta[:, None] / 2) ** (l - 1) * hyp0f1(l + dim / 2, beta[:, None] ** 2 / 4)
    return first, np.concatenate([np.zeros((len(beta), 1)), rest], axis=1)
