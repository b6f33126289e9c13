"""Distances between measures, and the gradient flows they make."""

from jaxflow.transport.energy import energy_distance as energy_distance
from jaxflow.transport.exact import wasserstein_clouds as wasserstein_clouds
from jaxflow.transport.gaussian import wasserstein_gaussian as wasserstein_gaussian
from jaxflow.transport.gaussian import wasserstein_squared as wasserstein_squared
from jaxflow.transport.jko import MinimisingMovement as MinimisingMovement
from jaxflow.transport.jko import jko as jko
from jaxflow.transport.minimise import Ended as Ended
from jaxflow.transport.minimise import name_of as name_of
from jaxflow.transport.parting import wasserstein_path as wasserstein_path
from jaxflow.transport.sinkhorn import sinkhorn_divergence as sinkhorn_divergence
from jaxflow.transport.sliced import sliced_wasserstein as sliced_wasserstein
from jaxflow.transport.sliced import sliced_wasserstein_squared as sliced_wasserstein_squared
from jaxflow.transport.weighted import WeightedDistance as WeightedDistance
from jaxflow.transport.weighted import weighted_distance as weighted_distance
