"""Is this one cloud, or one Gaussian? What every flow asks of the state it starts from."""

from typing import Any

from jaxflow.errors import InputError
from jaxflow.measures.cloud import Cloud
from jaxflow.measures.gaussian import Gaussian


def check_single_cloud(state: Any) -> None:
    """Raise InputError unless `state` is a Cloud without leading axes."""
    if not isinstance(state, Cloud):
        raise InputError("must be a Cloud of tokens", where="state", got=type(state).__name__, fix="jf.Cloud(points)")
    if state.points.ndim != 2:
        raise InputError("must be a single cloud", where="state.points", got=state.points.shape, fix="use jax.vmap")


def check_single_gaussian(state: Any) -> None:
    """Raise InputError unless `state` is a Gaussian without leading axes."""
    if not isinstance(state, Gaussian):
        raise InputError("must be a Gaussian", where="state", got=type(state).__name__, fix="jf.Gaussian(mean, factor)")
    if state.mean.ndim != 1:
        raise InputError(
            "must be a single Gaussian", where="state.mean", got=state.mean.shape, fix="use jax.vmap for ensembles"
        )
