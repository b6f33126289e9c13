"""Gaussians through trained transformers: encoders from a local folder, and how long what they make stays Gaussian."""

from jaxflow.pretrained.attention import SelfAttention as SelfAttention
from jaxflow.pretrained.block import Block as Block
from jaxflow.pretrained.encoder import Encoder as Encoder
from jaxflow.pretrained.load import load as load
