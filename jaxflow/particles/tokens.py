"""Where tokens start: the clouds of arXiv:2605.18870 §5, and a few standard ones. All on the unit sphere."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey
from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud


def _check(n: int, d: int, noise: float = 0.0) -> None:
    for name, value, least in (("n", n, 1), ("dim", d, 2), ("noise", noise, 0)):
        if value < least:
            raise InputError("is too small", where=name, got=value, expected=f"at least {least}")


def cross_polytope(key: PRNGKey, *, n: int, dim: int, noise: float = 0.05) -> Cloud:
    """Random vertices ±e_i of the cross-polytope plus N(0, noise²) in every coordinate, renormalised."""
    _check(n, dim, noise)
    pick, shake = jax.random.split(key)
    vertices = jnp.concatenate([jnp.eye(dim), -jnp.eye(dim)])
    x = vertices[jax.random.randint(pick, (n,), 0, 2 * dim)] + noise * jax.random.normal(shake, (n, dim))
    return Cloud(Sphere().retract(x))


def octahedral(key: PRNGKey, *, n: int, noise: float = 0.05) -> Cloud:
    """`cross_polytope` in d = 3: the start of the S² experiments (n = 200, noise = 0.05)."""
    return cross_polytope(key, n=n, dim=3, noise=noise)


def equispaced(key: PRNGKey, *, n: int, noise: float = 0.05, centres: int = 5) -> Cloud:
    """On S¹: token i at the angle 2π(i mod centres)/centres plus N(0, noise²): the start of the S¹ experiments."""
    _check(n, 2, noise)
    _check(centres, 2)
    angle = 2 * jnp.pi * (jnp.arange(n) % centres) / centres + noise * jax.random.normal(key, (n,))
    return Cloud(jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1))


def uniform(key: PRNGKey, *, n: int, dim: int) -> Cloud:
    """Independent and uniform on S^{dim−1}."""
    _check(n, dim)
    return Cloud(Sphere().sample(key, n, dim))


def von_mises_fisher(key: PRNGKey, *, n: int, dim: int, concentration: float) -> Cloud:
    """Independent from the density ∝ e^{κ⟨x, e₁⟩} on S^{dim−1}, κ the concentration ≥ 0.

    Exact rejection sampling of ⟨x, e₁⟩ from a beta envelope. Source: Wood, Comm. Statist. Simulation 23 (1994).
    """
    _check(n, dim, concentration)
    d1 = dim - 1.0
    b = d1 / (2 * concentration + np.sqrt(4 * concentration**2 + d1**2))
    x0 = (1 - b) / (1 + b)
    c = concentration * x0 + d1 * np.log(1 - x0**2)
    height, around = jax.random.split(key)

    def draw(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, t, accepted = carry
        key, k1, k2 = jax.random.split(key, 3)
        z = jax.random.beta(k1, d1 / 2, d1 / 2, (n,))
        new = (1 - (1 + b) * z) / (1 - (1 - b) * z)
        passes = concentration * new + d1 * jnp.log(1 - x0 * new) - c >= jnp.log(jax.random.uniform(k2, (n,)))
        return key, jnp.where(accepted, t, new), accepted | passes

    begin = (height, jnp.zeros(n), jnp.zeros(n, bool))
    _, t, _ = jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), draw, begin)
    u = Sphere().sample(around, n, dim - 1)
    return Cloud(Sphere().retract(jnp.concatenate([t[:, None], jnp.sqrt(1 - t**2)[:, None] * u], -1)))


def equiangular(*, n: int, dim: int, cosine: float) -> Cloud:
    """n ≤ dim unit vectors with every pair at the same ⟨x_i, x_j⟩ = cosine: they stay equiangular under the flow.

    Raises:
        InputError: n > dim, or a cosine outside (−1/(n−1), 1).
    """
    _check(n, dim)
    least = -1 / (n - 1) if n > 1 else -1.0
    if n > dim or not least < cosine < 1:
        raise InputError(
            "cannot be equiangular",
            where="tokens",
            got=f"n={n}, dim={dim}, cosine={cosine}",
            expected=f"n ≤ dim and {least:.4g} < cosine < 1",
        )
    gram = (1 - cosine) * np.eye(n) + cosine
    x: Float[Array, "n d"] = jnp.asarray(np.pad(np.linalg.cholesky(gram), ((0, 0), (0, dim - n))))
    return Cloud(Sphere().retract(x))
