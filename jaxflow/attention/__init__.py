"""The one primitive everything is built from, log m_h(x) and a_h(x), by several methods; and rules of attention."""

from jaxflow.attention.auto import Auto as Auto
from jaxflow.attention.base import AbstractKernel as AbstractKernel
from jaxflow.attention.base import Tilted as Tilted
from jaxflow.attention.chunked import Chunked as Chunked
from jaxflow.attention.dense import Dense as Dense
from jaxflow.attention.hardmax import hardmax as hardmax
from jaxflow.attention.harmonic import Harmonic as Harmonic
from jaxflow.attention.l2 import L2 as L2
from jaxflow.attention.pairing import AbstractPairing as AbstractPairing
from jaxflow.attention.pairing import Affine as Affine
from jaxflow.attention.pallas import Pallas as Pallas
from jaxflow.attention.sinkhorn import Coupling as Coupling
from jaxflow.attention.sinkhorn import Sinkhorn as Sinkhorn
from jaxflow.attention.softmax import Softmax as Softmax
