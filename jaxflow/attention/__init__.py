"""The one primitive everything is built from: log m_h(x) and a_h(x), by several methods."""

from jaxflow.attention.base import AbstractKernel as AbstractKernel
from jaxflow.attention.base import Tilted as Tilted
from jaxflow.attention.chunked import Chunked as Chunked
from jaxflow.attention.dense import Dense as Dense
