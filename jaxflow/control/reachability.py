"""What no control can change, asked before any optimisation starts (arXiv:2606.07600, reachability).

Σ̇ = KΣ + ΣKᵀ keeps the rank of Σ whatever A, B, V, b are. Without V and b the mean obeys the same K, μ̇ = Kμ, so that
"μ lies in the range of Σ" and, where it holds, μᵀΣ⁺μ are constant. Without b alone μ̇ = (A + V + VΣB)μ is still linear:
a mean of zero stays zero and no other becomes zero; in one dimension it keeps its sign. K = A + VΣB needs A, or both B
and V, or else nothing moves Σ.
"""

import numpy as np

from jaxflow._checks import is_concrete
from jaxflow.errors import UnreachableError
from jaxflow.measures import Gaussian

TOLERANCE = 1e-9
"""Relative size below which a difference of invariants counts as rounding."""


def check_reachable(start: Gaussian, target: Gaussian, allow: str) -> None:
    """Raise UnreachableError, naming the invariant, if these controls cannot carry start to target."""
    if start.dim != target.dim:
        raise UnreachableError(
            "lives in another dimension than the start", where="target", got=target.dim, expected=f"d = {start.dim}"
        )
    if start.rank != target.rank:
        raise UnreachableError(
            "is unreachable: the rank of the covariance is invariant under every control",
            where="target",
            got=f"rank {target.rank}",
            expected=f"rank {start.rank}, that of the start",
            fix="choose a target of the same rank, or regularise both covariances",
        )
    if not all(is_concrete(x) for g in (start, target) for x in (g.mean, g.factor)):
        return
    # In NumPy, so that nothing here is traced where known Gaussians meet a jit.
    (mu0, L0), (mu1, L1) = ((np.asarray(g.mean), np.asarray(g.factor)) for g in (start, target))
    S0, S1 = L0 @ L0.T, L1 @ L1.T
    scale = max(np.abs(S0).max(), np.abs(S1).max())
    bends = "A" in allow or {"B", "V"} <= set(allow)
    if not bends and np.abs(S0 - S1).max() > TOLERANCE * scale:
        raise UnreachableError(
            "is unreachable: without A, and without B and V together, the covariance is constant",
            where="target.covariance",
            got=f"allow = {allow!r} and covariances that differ by {np.abs(S0 - S1).max():.3g}",
            fix='allow A (linear layers) or V with B (attention), such as allow="ABVb"',
        )
    if "b" in allow:
        return
    _check_zero_mean(mu0, mu1)
    if "V" in allow:
        return
    (inside0, size0), (inside1, size1) = _mean_invariants(mu0, S0), _mean_invariants(mu1, S1)
    if inside0 != inside1:
        raise UnreachableError(
            'is unreachable: without V and b, "the mean lies in the range of the covariance" is invariant',
            where="target.mean",
            got=f"{'true' if inside0 else 'false'} at the start, {'true' if inside1 else 'false'} at the target",
            fix="allow the bias b, or the attention V",
        )
    if inside0 and abs(size0 - size1) > 1e-6 * max(1.0, size0, size1):
        raise UnreachableError(
            "is unreachable: without V and b, μᵀΣ⁺μ is invariant",
            where="target.mean",
            got=f"{size0:.6g} at the start, {size1:.6g} at the target",
            fix="allow the bias b, or the attention V",
        )


def _check_zero_mean(mu0: np.ndarray, mu1: np.ndarray) -> None:
    """Without b the mean moves linearly."""
    if bool(np.any(mu0)) != bool(np.any(mu1)):
        raise UnreachableError(
            "is unreachable: without b a mean of zero stays zero, and no other becomes zero",
            where="target.mean",
            got=f"|μ| = {np.linalg.norm(mu0):.3g} at the start, {np.linalg.norm(mu1):.3g} at the target",
            fix="allow the bias b",
        )
    if len(mu0) == 1 and mu0[0] * mu1[0] < 0:
        raise UnreachableError(
            "is unreachable: in one dimension the mean keeps its sign without b",
            where="target.mean",
            got=f"{mu0[0]:.3g} at the start, {mu1[0]:.3g} at the target",
            fix="allow the bias b",
        )


def _mean_invariants(mu: np.ndarray, Sigma: np.ndarray) -> tuple[bool, float]:
    """Whether μ ∈ range Σ, and μᵀΣ⁺μ."""
    z = np.linalg.pinv(Sigma, rcond=1e-12, hermitian=True) @ mu
    inside = bool(np.linalg.norm(Sigma @ z - mu) <= 1e-6 * max(np.linalg.norm(mu), 1e-300))
    return inside, float(mu @ z)
