"""How does a config name a Gaussian? `[start]`, `[target]`, and the Gaussian kinds of `[tokens]`."""

from jaxflow.experiments.schema.base import Matrix, Table, Vector


class Gaussian(Table, frozen=True, kw_only=True):
    """Either `samples`, a file whose mean and covariance are taken, or `mean` with `covariance` or `factor`.

    An absent `mean` is zero. `factor` L is d×r and stands for the covariance L Lᵀ of rank at most r.
    """

    samples: str | None = None
    mean: Vector | None = None
    covariance: Matrix | None = None
    factor: Matrix | None = None
