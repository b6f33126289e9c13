"""Where tokens live: the unit sphere or Euclidean space."""

from jaxflow.geometry.base import AbstractGeometry as AbstractGeometry
from jaxflow.geometry.euclidean import Euclidean as Euclidean
from jaxflow.geometry.sphere import Sphere as Sphere
