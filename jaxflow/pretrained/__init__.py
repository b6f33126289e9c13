"""Gaussians through trained transformers: encoders from a local folder, and how long what they make stays Gaussian."""

from jaxflow.pretrained.attention import SelfAttention as SelfAttention
from jaxflow.pretrained.block import Block as Block
from jaxflow.pretrained.departures import Departures as Departures
from jaxflow.pretrained.departures import departures as departures
from jaxflow.pretrained.effective import EffectiveLayer as EffectiveLayer
from jaxflow.pretrained.effective import effective_layer as effective_layer
from jaxflow.pretrained.encoder import Encoder as Encoder
from jaxflow.pretrained.inputs import own_gaussian as own_gaussian
from jaxflow.pretrained.inputs import round_gaussian as round_gaussian
from jaxflow.pretrained.layerwise import LayerReport as LayerReport
from jaxflow.pretrained.layerwise import measure_layer as measure_layer
from jaxflow.pretrained.layerwise import p_values as p_values
from jaxflow.pretrained.load import load as load
from jaxflow.pretrained.prescribed import PrescribedAttention as PrescribedAttention
from jaxflow.pretrained.prescribed import prescribe as prescribe
