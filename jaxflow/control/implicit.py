"""How do controls that hit answer a change of start or target? By the smallest change that still hits.

c(u; start, target) = 0 says that controls u hit. Differentiated, J du + ∂c = 0, and of all du
    du = −Jᵀ(JJᵀ)^{-1} ∂c
is the smallest: the step that Gauss–Newton, begun at u, takes to first order. Nothing of the search is differentiated.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxflow.control.frame import frame_of
from jaxflow.control.problem import Controls, Problem
from jaxflow.control.shoot import rough_end
from jaxflow.control.tangent import tangents

STEPS = 100
"""RK4 steps in all, spread over the pieces, that these derivatives are worked out with."""


def respond(problem: Problem, controls: Controls) -> Controls:
    """The same controls, with the derivative −J⁺∂c in the start and the target of the problem.

    The value is that of `controls`; forward and reverse mode work, of first order. Cost: m = d(d+3)/2 pull-backs of a
    moment flow and a symmetric eigenproblem of size m. Meaningless where the controls do not hit.
    """
    fixed, found = jax.lax.stop_gradient((problem, controls))
    steps = max(2, -(-STEPS // problem.shape.pieces))
    flat, unravel = ravel_pytree(found)
    frame = frame_of(fixed.target)

    def gap(problem: Problem, flat: Array) -> Array:
        end = rough_end(problem.weights(unravel(flat)), problem.start, problem.t1, steps)
        return frame.gap(end, problem.target)

    c, pull_back = jax.vjp(lambda flat: gap(fixed, flat), flat)
    (J,) = jax.vmap(pull_back)(jnp.eye(c.shape[0], dtype=c.dtype))
    space, c = jax.lax.stop_gradient((tangents(J), c))
    return unravel(flat - space.lift(gap(problem, flat) - c))
