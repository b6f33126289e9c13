"""How does a `[density]` table become a density?"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import eval_legendre

from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.schema.meanfield import Mixture, Ripples, Smoothed, Start, Wave
from jaxflow.meanfield import Density
from jaxflow.meanfield.waves import area, degrees


def start(table: Start, key: Any, *, folder: Path, precision: str) -> Density:
    """The density of this table, in this precision; random ones from the stream `tokens` of the key.

    Raises:
        InputError: the degree does not resolve it.
    """
    try:
        match table:
            case Mixture():
                density = _mixture(table)
            case Wave():
                density = _wave(table)
            case Ripples():
                density = _ripples(table, build.stream(key, "tokens"))
            case Smoothed():
                cloud = build.cloud(table.tokens, key, folder=folder, precision=precision)
                density = Density.from_cloud(cloud, degree=table.degree, bandwidth=table.bandwidth)
        density.check_resolved("density", f"a density.degree above {table.degree}, or a smoother start")
    except InputError as error:
        where = "density.bandwidth" if error.where == "bandwidth" else "density"
        raise InputError(error.what, where=where, got=error.got, expected=error.expected, fix=error.fix) from None
    return Density(density.coefficients.astype(precision), density.dim)


def _mixture(table: Mixture) -> Density:
    k, centres = table.concentration, [np.asarray(c) / np.linalg.norm(c) for c in table.centres]
    shares = table.shares or [1 / len(centres)] * len(centres)
    # e^{k(⟨c,x⟩ − 1)} has a mass that does not overflow; each is normalised by itself.
    parts = [
        Density.from_function(
            lambda x, c=c: jnp.exp(k * (x @ jnp.asarray(c, x.dtype) - 1)),
            dim=table.dim,
            degree=table.degree,
            normalize=True,
        )
        for c in centres
    ]
    uniform = Density.uniform(dim=table.dim, degree=table.degree).coefficients
    c = sum((s * part.coefficients for s, part in zip(shares, parts)), (1 - sum(shares)) * uniform)
    return Density(c, table.dim)


def _wave(table: Wave) -> Density:
    def function(x: Any) -> Any:
        points = np.asarray(x)
        if table.dim == 2:
            wave = np.cos(table.mode * np.arctan2(points[:, 1], points[:, 0]))
        else:
            wave = eval_legendre(table.mode, points[:, 2])
        return jnp.asarray((1 + table.size * wave) / area(table.dim), x.dtype)

    return Density.from_function(function, dim=table.dim, degree=table.degree)


def _ripples(table: Ripples, key: Any) -> Density:
    u = Density.uniform(dim=table.dim, degree=table.degree)
    noise = jax.random.normal(key, u.coefficients.shape, u.coefficients.dtype)
    l = degrees(table.dim, table.degree)
    waves = jnp.where((l > 0) & (l <= table.modes), table.size * u.coefficients[0] * noise, 0)
    return Density(u.coefficients + waves, table.dim)
