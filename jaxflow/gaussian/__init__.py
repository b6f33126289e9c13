"""Gaussians through transformers: exact equations for mean and covariance, and their closed forms."""

from jaxflow.gaussian.closed import linear as linear
from jaxflow.gaussian.closed import scalar_blowup_time as scalar_blowup_time
from jaxflow.gaussian.closed import scalar_variance as scalar_variance
from jaxflow.gaussian.closures import ClosureFlow as ClosureFlow
from jaxflow.gaussian.flow import MomentFlow as MomentFlow
from jaxflow.gaussian.observables import MomentReport as MomentReport
from jaxflow.gaussian.observables import moments as moments
from jaxflow.measures import Gaussian as Gaussian
