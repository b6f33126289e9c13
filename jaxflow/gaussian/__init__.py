"""Gaussians through transformers: exact equations for mean and covariance, and their closed forms."""

from jaxflow.gaussian.closed import linear as linear
from jaxflow.gaussian.closed import scalar_blowup_time as scalar_blowup_time
from jaxflow.gaussian.closed import scalar_variance as scalar_variance
from jaxflow.gaussian.closures import ClosureFlow as ClosureFlow
from jaxflow.gaussian.flow import MomentFlow as MomentFlow
from jaxflow.gaussian.mixtures import mixture_attention as mixture_attention
from jaxflow.gaussian.observables import MomentReport as MomentReport
from jaxflow.gaussian.observables import moments as moments
from jaxflow.gaussian.relu import negative_part as negative_part
from jaxflow.gaussian.relu import relu_bound as relu_bound
from jaxflow.gaussian.relu import relu_bound_slope as relu_bound_slope
from jaxflow.gaussian.relu import relu_true_slope as relu_true_slope
from jaxflow.measures import Gaussian as Gaussian
