"""What moves the tokens: one layer, and how layers change with depth."""

from jaxflow.weights.diffusion import Diffusion as Diffusion
from jaxflow.weights.fourier import Fourier as Fourier
from jaxflow.weights.layer import Layer as Layer
from jaxflow.weights.layer import make_layer as make_layer
from jaxflow.weights.norms import largest_norm as largest_norm
from jaxflow.weights.oscillating import Oscillating as Oscillating
from jaxflow.weights.ou import OrnsteinUhlenbeck as OrnsteinUhlenbeck
from jaxflow.weights.ou import random_heads as random_heads
from jaxflow.weights.perturbed import Perturbed as Perturbed
from jaxflow.weights.random import AbstractRandom as AbstractRandom
from jaxflow.weights.relaxing import Relaxing as Relaxing
from jaxflow.weights.schedules import AbstractSchedule as AbstractSchedule
from jaxflow.weights.schedules import Constant as Constant
from jaxflow.weights.schedules import Function as Function
from jaxflow.weights.schedules import Piecewise as Piecewise
from jaxflow.weights.schedules import Sampled as Sampled
from jaxflow.weights.values import Values as Values
from jaxflow.weights.values import make_values as make_values
