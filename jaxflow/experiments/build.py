"""How do the tables of a config become the library's objects? One function per table."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import particles, weights
from jaxflow.attention import Auto, Chunked, Dense
from jaxflow.errors import InputError
from jaxflow.experiments.data import explicit_points, gaussian_data
from jaxflow.experiments.schema import tokens as T
from jaxflow.experiments.schema import weights as W
from jaxflow.experiments.schema.gaussian import Gaussian as GaussianTable
from jaxflow.experiments.schema.solve import Solve
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud, Gaussian, gauss_hermite, sample
from jaxflow.solve import RK4, AbstractMethod, Dopri8, Euler, Heun, Kvaerno5, Tsit5

METHODS: dict[str, AbstractMethod] = {
    "euler": Euler(),
    "heun": Heun(),
    "rk4": RK4(),
    "tsit5": Tsit5(),
    "dopri8": Dopri8(),
    "kvaerno5": Kvaerno5(),
}

STREAMS = ("tokens", "heads", "noise")
"""Names of the random streams of one path; each is the root key folded with its place in this list."""


def stream(key: Any, name: str) -> Any:
    """The random stream of this name."""
    return jax.random.fold_in(key, STREAMS.index(name))


def gaussian(table: GaussianTable, *, where: str, folder: Path, precision: str) -> Gaussian:
    """The Gaussian of a `[start]` or `[target]` table."""
    data = gaussian_data(table, where=where, folder=folder, precision=precision)
    try:
        if data.factor is not None:
            return Gaussian(jnp.asarray(data.mean), jnp.asarray(data.factor))
        return Gaussian.from_covariance(jnp.asarray(data.mean), jnp.asarray(data.covariance))
    except InputError as error:
        raise error.at(where) from None


def cloud(table: T.Tokens, key: Any, *, folder: Path, precision: str) -> Cloud:
    """The tokens of a `[tokens]` table, drawn from the stream `tokens` of this key."""
    key = stream(key, "tokens")
    match table:
        case T.Octahedral():
            return particles.octahedral(key, n=table.n, noise=table.noise)
        case T.CrossPolytope():
            return particles.cross_polytope(key, n=table.n, dim=table.dim, noise=table.noise)
        case T.Equispaced():
            return particles.equispaced(key, n=table.n, noise=table.noise, centres=table.centres)
        case T.Uniform():
            return particles.uniform(key, n=table.n, dim=table.dim)
        case T.VonMisesFisher():
            drawn = particles.von_mises_fisher(key, n=table.n, dim=table.dim, concentration=table.concentration)
            return drawn if table.centre is None else around(drawn, np.asarray(table.centre, precision))
        case T.Equiangular():
            return particles.equiangular(n=table.n, dim=table.dim, cosine=table.cosine)
        case T.GaussHermite():
            start = gaussian(table, where="tokens", folder=folder, precision=precision)
            return gauss_hermite(start, nodes=table.n)
        case T.GaussianTokens():
            return sample(gaussian(table, where="tokens", folder=folder, precision=precision), key, n=table.n)
        case T.Explicit():
            return explicit(table, folder=folder, precision=precision)


def around(cloud: Cloud, centre: np.ndarray) -> Cloud:
    """The cloud reflected so that e₁ comes to the direction of `centre`; a law symmetric about one stays so."""
    v = np.eye(len(centre))[0] - centre / np.linalg.norm(centre)
    if not np.any(v):
        return cloud
    mirror = np.eye(len(centre)) - 2 * np.outer(v, v) / (v @ v)
    return Cloud(cloud.points @ jnp.asarray(mirror, cloud.points.dtype), cloud.log_weights)


def explicit(table: T.Explicit, *, folder: Path, precision: str) -> Cloud:
    """The tokens written out in a config or in a file."""
    points = jnp.asarray(explicit_points(table, folder=folder, precision=precision))
    if table.weights is None:
        return Cloud(points)
    return Cloud.from_weights(points, jnp.asarray(table.weights, points.dtype))


def schedule(table: W.Weights, key: Any, *, dim: int, precision: str) -> weights.AbstractSchedule:
    """The schedule of a `[weights]` table; heads drawn at random come from the stream `heads` of this key."""

    def array(x: Any) -> Any:
        return None if x is None else np.asarray(x, precision)

    def heads(table: Any) -> Any:
        if table.heads is None:
            return array(table.D)
        return weights.random_heads(stream(key, "heads"), heads=table.heads, dim=dim)

    match table:
        case W.Constant():
            return weights.Constant(
                D=heads(table), B=array(table.B), V=array(table.V), A=array(table.A), b=array(table.b)
            )
        case W.Piecewise():
            parts: dict[str, Any] = {
                name: np.stack([array(getattr(segment, name)) for segment in table.segments])
                for name in ("D", "B", "V", "A", "b")
                if getattr(table.segments[0], name) is not None
            }
            return weights.Piecewise(**parts, durations=[segment.duration for segment in table.segments])
        case W.OrnsteinUhlenbeck():
            mean = np.eye(dim, dtype=precision) if table.mean is None else array(table.mean)
            if table.noise_var == 0:
                return weights.Relaxing(initial=heads(table), mean=mean, A=array(table.A), b=array(table.b))
            return weights.OrnsteinUhlenbeck(
                initial=heads(table),
                mean=mean,
                noise_var=table.noise_var,
                A=array(table.A),
                b=array(table.b),
            )
        case W.Oscillating():
            return weights.Oscillating(initial=heads(table), phase=table.phase, A=array(table.A), b=array(table.b))


def attention_flow(table: Any, weights: weights.AbstractSchedule) -> particles.AttentionFlow:
    """The flow of tokens of a `[flow]` table with these weights."""
    geometry = Sphere() if table.geometry == "sphere" else Euclidean()
    return particles.AttentionFlow(
        weights,
        law=table.law,
        direction=table.direction,
        geometry=geometry,
        kernel=Dense() if table.kernel == "dense" else Chunked() if table.kernel == "chunked" else Auto(),
        causal=table.causal,
        normalization=table.normalization,
        kappa=table.kappa,
    )


def solve_options(table: Solve) -> dict[str, Any]:
    """The keyword arguments of `jaxflow.solve` that a completed `[solve]` table stands for."""
    assert table.method is not None
    names = ("t1", "dt", "rtol", "atol", "save_every", "save_at", "max_steps")
    options = {name: getattr(table, name) for name in names if getattr(table, name) is not None}
    return {"method": METHODS[table.method], **options}
