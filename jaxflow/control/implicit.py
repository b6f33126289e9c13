"""How do controls that hit answer a change of start or target? By the smallest change that still hits.

c(u; start, target) = 0 says that controls u hit. Differentiated, J du + ∂c = 0, and of all du
    du = −Jᵀ(JJᵀ)^{-1} ∂c
is the smallest: the step that Gauss–Newton, begun at u, takes to first order. Nothing of the search is differentiated.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxflow.control.frame import frame_of
from jaxflow.control.problem import Controls, Problem
from jaxflow.control.shoot import rough_end

STEPS = 100
"""RK4 steps in all, spread over the pieces, that these derivatives are worked out with."""


def respond(problem: Problem, controls: Controls) -> Controls:
    """The same controls, with the derivative −J⁺∂c in the start and the target of the problem.

    The value is that of `controls`; forward and reverse mode work, of first order. Cost: m = d(d+3)/2 pull-backs of a
    moment flow and a symmetric eigenproblem of size m. Meaningless where the controls do not hit.
    """
    fixed, found = jax.lax.stop_gradient((problem, controls))
    d, steps = problem.start.dim, max(2, -(-STEPS // problem.shape.pieces))
    flat, unravel = ravel_pytree(found)
    W, kept = frame_of(fixed.target)
    rows, columns = np.tril_indices(d)

    def gap(problem: Problem, flat: Array) -> Array:
        end = rough_end(problem.weights(unravel(flat)), problem.start, problem.t1, steps)
        E = W @ (end.factor @ end.factor.T - problem.target.factor @ problem.target.factor.T) @ W.T
        return jnp.concatenate([W @ (end.mean - problem.target.mean), jnp.where(kept, E[rows, columns], 0)])

    c, pull_back = jax.vjp(lambda flat: gap(fixed, flat), flat)
    (J,) = jax.vmap(pull_back)(jnp.eye(c.shape[0], dtype=c.dtype))
    g, U = jnp.linalg.eigh(J @ J.T)
    weights = jnp.where(g > 1e-13 * g[-1], 1 / jnp.where(g > 0, g, 1), 0)
    pseudo_inverse, c = jax.lax.stop_gradient((J.T @ (U * weights[None, :]) @ U.T, c))
    return unravel(flat - pseudo_inverse @ (gap(problem, flat) - c))
