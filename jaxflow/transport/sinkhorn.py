"""The Sinkhorn divergence: entropic transport without its bias,

    S_ε(μ, ν) = OT_ε(μ, ν) − ½ OT_ε(μ, μ) − ½ OT_ε(ν, ν),   OT_ε = min_π Σ π_ij c_ij + ε KL(π | w ⊗ v),   c = |x − y|²

evaluated in its dual, OT_ε = max over f, g of Σ w f + Σ v g − ε Σ w_i v_j (e^{(f_i + g_j − c_ij)/ε} − 1).
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_positive, is_concrete
from jaxflow._typing import Flag, Real, Scalar
from jaxflow.errors import JaxflowError, NumericalError
from jaxflow.measures import Cloud
from jaxflow.transport.pairs import check_pair


def sinkhorn_divergence(
    first: Cloud, second: Cloud, *, epsilon: Real, threshold: float = 1e-4, max_iterations: int = 5000
) -> Scalar:
    """S_ε: W₂² for ε → 0, the squared distance of the means for ε → ∞, |s|² between translates for every ε.

    Differentiable in points and weights: at the best f and g the derivative of the dual is that of OT_ε (envelope
    theorem), so that no iteration is differentiated.

    Args:
        first, second: clouds of any sizes and positive weights, (n, d) and (m, d).
        epsilon: ε, in squared units of length. A hundredth of the squared diameter is smooth and quick; small ε takes
            about 1/ε iterations.
        threshold: largest error (sum of absolute values) of a marginal that counts as solved. The value is then good to
            about its square, the gradient to itself.
        max_iterations: of Sinkhorn's algorithm.

    Raises:
        InputError: see `check_pair`; epsilon ≤ 0.
        NumericalError: the iterations did not converge (where values can be seen; under jit the last iterate counts).
        JaxflowError: ott-jax is not installed.

    Cost: O(n m d) per iteration and O(n m) memory.
    Source: Feydy et al., AISTATS 2019, arXiv:1810.08278. Potentials by ott-jax (extra `ot`).
    """
    check_pair(first, second)
    check_positive(epsilon, "epsilon")
    ott = _library()
    options = {"epsilon": epsilon, "threshold": threshold, "max_iterations": max_iterations}
    found = [_entropic(ott, x, y, **options) for x, y in ((first, second), (first, first), (second, second))]
    converged = jnp.all(jnp.stack([solved for _, solved in found]))
    if is_concrete(converged) and not bool(converged):
        raise NumericalError(
            f"Sinkhorn's algorithm left a marginal off by more than {threshold:g} after {max_iterations} iterations",
            status="max_iterations",
            advice="raise epsilon, threshold or max_iterations",
        )
    across, own, other = (value for value, _ in found)
    return across - own / 2 - other / 2


def _entropic(ott: Any, x: Cloud, y: Cloud, *, epsilon: Real, **options: Any) -> tuple[Scalar, Flag]:
    """OT_ε, and whether it was solved."""
    dtype = x.points.dtype
    epsilon = jnp.asarray(epsilon, dtype)
    fixed_x, fixed_y = jax.lax.stop_gradient((x, y))
    # ott promotes ranks, which a user of jaxflow may have forbidden.
    with jax.numpy_rank_promotion("allow"):
        geometry = ott.PointCloud(fixed_x.points, fixed_y.points, epsilon=jax.lax.stop_gradient(epsilon))
        if x is y:
            # The averaged iteration of a cloud with itself needs a few steps only.
            options |= {"parallel_dual_updates": True, "momentum": ott.Momentum(start=0, value=0.5)}
        solved = ott.solve(geometry, a=fixed_x.weights, b=fixed_y.weights, **options)
    # ott's plan is e^{(f+g−c)/ε}, ours w ⊗ v times it.
    f, g = (potential - epsilon * cloud.log_w for potential, cloud in ((solved.f, fixed_x), (solved.g, fixed_y)))
    return _dual(x, y, *jax.lax.stop_gradient((f, g)), epsilon), jnp.asarray(solved.converged)


def _dual(x: Cloud, y: Cloud, f: Float[Array, " n"], g: Float[Array, " m"], epsilon: Scalar) -> Scalar:
    """The dual function at these potentials."""
    w, v = x.weights, y.weights
    cost = jnp.sum((x.points[:, None] - y.points[None]) ** 2, axis=-1)
    plan = w[:, None] * v[None] * jnp.exp((f[:, None] + g[None] - cost) / epsilon)
    return w @ f + v @ g - epsilon * (jnp.sum(plan) - jnp.sum(w) * jnp.sum(v))


class _Library:
    """The three names of ott that are used."""

    def __init__(self) -> None:
        from ott.geometry.pointcloud import PointCloud
        from ott.solvers.linear import solve
        from ott.solvers.linear.acceleration import Momentum

        self.PointCloud, self.solve, self.Momentum = PointCloud, solve, Momentum


def _library() -> _Library:
    """Loaded late: an extra, and it takes a second."""
    try:
        with warnings.catch_warnings():
            # ott imports jaxopt, of which nothing runs here and which announces that it is no longer maintained.
            warnings.filterwarnings("ignore", "JAXopt is no longer maintained", DeprecationWarning)
            return _Library()
    except ImportError as error:
        raise JaxflowError(
            "the Sinkhorn divergence needs ott-jax, which is not installed\n  fix: pip install 'jaxflow[ot]'"
        ) from error
