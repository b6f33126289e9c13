"""Infinitely many tokens: the transformer as an equation for densities on S¹ and S²."""

from jaxflow.meanfield.balance import DensityBalance as DensityBalance
from jaxflow.meanfield.balance import balance as balance
from jaxflow.meanfield.balance import energy as energy
from jaxflow.meanfield.clouds import cloud_distance as cloud_distance
from jaxflow.meanfield.clouds import fluctuations as fluctuations
from jaxflow.meanfield.clouds import sampling_distance as sampling_distance
from jaxflow.meanfield.density import Density as Density
from jaxflow.meanfield.density import coefficients as coefficients
from jaxflow.meanfield.density import least as least
from jaxflow.meanfield.flow import DensityFlow as DensityFlow
from jaxflow.meanfield.growth import fastest_mode as fastest_mode
from jaxflow.meanfield.growth import growth_rates as growth_rates
from jaxflow.meanfield.infinite import InfiniteDensityFlow as InfiniteDensityFlow
