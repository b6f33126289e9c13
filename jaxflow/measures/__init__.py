"""The two ways a measure is represented: weighted points, and mean with covariance factor."""

from jaxflow.measures.cloud import Cloud as Cloud
from jaxflow.measures.gaussian import Gaussian as Gaussian
from jaxflow.measures.sampling import gauss_hermite as gauss_hermite
from jaxflow.measures.sampling import sample as sample
