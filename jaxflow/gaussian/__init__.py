"""Gaussians through transformers: exact equations for mean and covariance, and their closed forms."""

from jaxflow.gaussian.closed import linear as linear
from jaxflow.gaussian.closed import scalar_blowup_time as scalar_blowup_time
from jaxflow.gaussian.closed import scalar_variance as scalar_variance
from jaxflow.gaussian.flow import MomentFlow as MomentFlow
from jaxflow.gaussian.observables import MomentReport as MomentReport
from jaxflow.gaussian.observables import moments as moments
from jaxflow.gaussian.phase import PHASES as PHASES
from jaxflow.gaussian.phase import blowup_threshold as blowup_threshold
from jaxflow.gaussian.phase import is_hurwitz as is_hurwitz
from jaxflow.gaussian.phase import mean_converges as mean_converges
from jaxflow.gaussian.phase import phase_of as phase_of
from jaxflow.measures import Gaussian as Gaussian
