"""Distances between measures."""

from jaxflow.transport.gaussian import wasserstein_gaussian as wasserstein_gaussian
from jaxflow.transport.gaussian import wasserstein_squared as wasserstein_squared
