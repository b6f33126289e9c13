"""What a search knows around its controls u: c(u), s(u) and the cost to first order, functions of them to second.

For constant pieces the derivatives of all fixed steps are worked out side by side (`sensitivity.py`); other curves are
differentiated one row at a time along the path.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._typing import Scalar
from jaxflow.control.ground import Ground
from jaxflow.control.sensitivity import Sides, Steps, bends, chain_of, flatten
from jaxflow.control.shoot import share, smooth_path
from jaxflow.gaussian.parts import parts_of
from jaxflow.measures import Gaussian
from jaxflow.weights import Piecewise

Combination = Callable[[Array, Array, Scalar], Scalar]
"""(c, s, cost) ↦ a number, affine in the cost."""


class Expansion(NamedTuple):
    """c (m,), s (q,), the cost, their gradients J (m, n), G (q, n) and slope (n,), and what turns a Combination f into
    v ↦ ∇²f v."""

    c: Array
    s: Array
    cost: Scalar
    J: Array
    G: Array
    slope: Array
    hessian: Callable[[Combination], Callable[[Array], Array]]


def expand(ground: Ground, u: Array, pace: Array) -> Expansion:
    """The expansion at u, with steps shared among the pieces in proportion to `pace`."""
    weights = ground.problem.weights(ground.controls(u))
    return side_by_side(ground, u, pace, weights) if isinstance(weights, Piecewise) else row_by_row(ground, u, pace)


def row_by_row(ground: Ground, u: Array, pace: Array) -> Expansion:
    """The same for every curve; the Hessian by fewer steps."""
    (c, s, cost), pull_back = jax.vjp(lambda u: ground.smooth(u, pace), u)
    c0, s0, zero, one = jnp.zeros_like(c), jnp.zeros_like(s), jnp.zeros_like(cost), jnp.ones_like(cost)
    J = jax.vmap(lambda e: pull_back((e, s0, zero))[0])(jnp.eye(c.size, dtype=u.dtype))
    G = jax.vmap(lambda e: pull_back((c0, e, zero))[0])(jnp.eye(s.size, dtype=u.dtype)).reshape(s.size, u.size)

    def hessian(f: Combination) -> Callable[[Array], Array]:
        return jax.linearize(jax.grad(lambda v: f(*ground.smooth(v, pace, fewer=True))), u)[1]

    return Expansion(c, s, cost, J, G, pull_back((c0, s0, one))[0], hessian)


def side_by_side(ground: Ground, u: Array, pace: Array, weights: Piecewise) -> Expansion:
    """The same for constant pieces, whose layers at u are given."""
    problem = ground.problem
    start, k, d = problem.start, pace.shape[0], problem.start.dim
    kinetic = ground.cost == "kinetic"
    shared = share(pace, ground.steps_for(pace))
    path, energy = smooth_path(weights, start, problem.t1, shared)

    def layers_at(u: Array) -> Array:
        weights: Any = problem.weights(ground.controls(u))
        parts = jax.vmap(parts_of)(weights.layers)
        return flatten(Sides(*(jnp.moveaxis(x, 0, -1) for x in parts)))

    layers, to_controls = jax.vjp(layers_at, u)
    ends = jnp.concatenate([path.factor, path.mean[:, :, None]], axis=2)
    begin = jnp.concatenate([start.factor, start.mean[:, None]], axis=1)
    of = (shared.of[:, None] == jnp.arange(k)[None]).astype(u.dtype)
    last = (jnp.arange(len(shared.of))[:, None] == shared.last[None]).astype(u.dtype)
    h = jnp.diff(jnp.asarray(weights.edges, u.dtype))[shared.of] / shared.many[shared.of]
    steps = Steps(layers, jnp.concatenate([begin[None], ends[:-1]]), h, of, last, weights.layers.heads)
    lanes = steps.lanes
    chain = chain_of(steps, lanes, energy=kinetic)

    def read(nodes: Array) -> tuple[Array, Array, Scalar]:
        """c, s and the energy from (y, energy) at the ends of pieces."""
        y = nodes[:, :-1].reshape(k, d, -1)
        return *ground.read(Gaussian(y[:, :, -1], y[:, :, :-1])), nodes[-1, -1]

    nodes = jnp.append(ends[shared.last].reshape(k, -1), jnp.zeros((k, 1), u.dtype), axis=1).at[-1, -1].set(energy)
    (c, s, energy), pull_read = jax.vjp(read, nodes)
    many = c.size + s.size
    eye = jnp.eye(many + kinetic, many + 1, dtype=u.dtype)
    given = jax.vmap(lambda e: pull_read((e[: c.size], e[c.size : many], e[-1]))[0])(eye)
    ends_rows, layer_rows = chain.back(jnp.einsum("jk,rke->jre", last, given))
    piece_rows = jnp.einsum("jk,jre->rke", of, layer_rows)
    rows = jax.vmap(lambda g: to_controls(g)[0])(piece_rows)
    effort, d_effort = jax.value_and_grad(ground.effort)(u)
    cost, slope = (energy, rows[-1]) if kinetic else (effort, d_effort)

    def hessian(f: Combination) -> Callable[[Array], Array]:
        on_c, on_s, on_cost = jax.grad(f, (0, 1, 2))(c, s, cost)
        coefficients = jnp.concatenate([on_c, on_s, on_cost[None]])[: many + kinetic]
        bend = bends(steps, lanes, jnp.einsum("r,jre->je", coefficients, ends_rows))

        def of_nodes(nodes: Array) -> Scalar:
            c, s, energy = read(nodes)
            return f(c, s, energy if kinetic else effort)

        push_layers = jax.linearize(layers_at, u)[1]
        bend_nodes = jax.linearize(jax.grad(of_nodes), nodes)[1]
        total = jnp.einsum("r,rke->ke", coefficients, piece_rows)
        bend_controls = jax.linearize(lambda u: jax.vjp(layers_at, u)[1](total)[0], u)[1]
        bend_effort = jax.linearize(jax.grad(lambda u: f(c, s, ground.effort(u))), u)[1]

        def times(v: Array) -> Array:
            dlayers = of @ push_layers(v)
            moved = chain.forth(dlayers)
            before = jnp.concatenate([jnp.zeros_like(moved[:1]), moved[:-1]])
            bent_states, bent_layers = bend(before, dlayers)
            # What step j + 1 is in the state before it is given at the end of step j.
            given = last @ bend_nodes(last.T @ moved)
            given = given.at[:-1].add(bent_states[1:])
            _, back = chain.back(given[:, None, :])
            out = to_controls(of.T @ (bent_layers + back[:, 0]))[0] + bend_controls(v)
            return out if kinetic else out + bend_effort(v)

        return times

    return Expansion(c, s, cost, rows[: c.size], rows[c.size : many], slope, hessian)
