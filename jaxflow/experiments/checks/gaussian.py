"""Is a Gaussian well given? One way to give it, one dimension, a covariance that is one."""

from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.data import read_samples
from jaxflow.experiments.schema.gaussian import Gaussian


def check_gaussian(gaussian: Gaussian, where: str, *, folder: Path, precision: str) -> int:
    """Check the table called `where`, and return its dimension."""
    if gaussian.samples is not None:
        refuse_given(gaussian, ("mean", "covariance", "factor"), where, "`samples` gives mean and covariance")
        samples = read_samples(gaussian.samples, where=f"{where}.samples", folder=folder, precision=precision)
        return samples.shape[1]
    if (gaussian.covariance is None) == (gaussian.factor is None):
        given = "neither" if gaussian.covariance is None else "both"
        raise InputError(
            "a Gaussian needs its covariance exactly once",
            where=where,
            got=given,
            expected="exactly one of `covariance` and `factor`, or `samples` alone",
        )
    if gaussian.covariance is not None:
        name = f"{where}.covariance"
        d = shapes.matrix(gaussian.covariance, name).shape[0]
        array = shapes.square(gaussian.covariance, name, d, "its own rows")
        shapes.symmetric(array, name, "make it symmetric, or give `factor` L, which stands for L Lᵀ")
        shapes.positive_semidefinite(array, name)
        source = name
    else:
        assert gaussian.factor is not None  # exactly one of the two is given
        source = f"{where}.factor"
        d = shapes.matrix(gaussian.factor, source).shape[0]
    if gaussian.mean is not None:
        shapes.vector(gaussian.mean, f"{where}.mean", d, source)
    return d
