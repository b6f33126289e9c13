"""Where do the tokens start? One struct per `kind` of `[tokens]`."""

from jaxflow.experiments.schema.base import Count, Matrix, NonNegative, Positive, Size, Table, Vector
from jaxflow.experiments.schema.gaussian import Gaussian


class Octahedral(Table, frozen=True, kw_only=True, tag_field="kind", tag="octahedral"):
    """Random vertices of the octahedron in R³, each moved by normal noise."""

    n: Count
    noise: NonNegative = 0.05
    dim: Count | None = None


class CrossPolytope(Table, frozen=True, kw_only=True, tag_field="kind", tag="cross_polytope"):
    """Random vertices ±e_i in R^dim, each moved by normal noise."""

    n: Count
    dim: Count
    noise: NonNegative = 0.05


class Equispaced(Table, frozen=True, kw_only=True, tag_field="kind", tag="equispaced"):
    """Tokens near `centres` equispaced angles of the circle."""

    n: Count
    noise: NonNegative = 0.05
    centres: Count = 5
    dim: Count | None = None


class Uniform(Table, frozen=True, kw_only=True, tag_field="kind", tag="uniform"):
    """Independent uniform points of the sphere."""

    n: Count
    dim: Count


class VonMisesFisher(Table, frozen=True, kw_only=True, tag_field="kind", tag="vmf"):
    """Independent points with density proportional to exp(concentration ⟨c, x⟩), c the direction of `centre` (e₁)."""

    n: Count
    dim: Count
    concentration: NonNegative
    centre: Vector | None = None


class Equiangular(Table, frozen=True, kw_only=True, tag_field="kind", tag="equiangular"):
    """Unit vectors with one and the same cosine between any two."""

    n: Count
    dim: Count
    cosine: float


class GaussianTokens(Gaussian, frozen=True, kw_only=True, tag_field="kind", tag="gaussian"):
    """Independent samples of a Gaussian."""

    n: Count
    dim: Count | None = None


class GaussHermite(Gaussian, frozen=True, kw_only=True, tag_field="kind", tag="gauss_hermite"):
    """The nodes and weights of the product Gauss–Hermite rule, `n` nodes per axis."""

    n: Count
    dim: Count | None = None


class Explicit(Table, frozen=True, kw_only=True, tag_field="kind", tag="explicit"):
    """Points written out, or read from a file, with positive weights (absent: all equal)."""

    points: Matrix | str
    weights: Vector | None = None
    dim: Count | None = None


Tokens = (
    Octahedral
    | CrossPolytope
    | Equispaced
    | Uniform
    | VonMisesFisher
    | Equiangular
    | GaussianTokens
    | GaussHermite
    | Explicit
)


class SteerTokens(Table, frozen=True, kw_only=True):
    """The tokens that a fitted control moves, to see it act on a finite cloud; none if `n` is 0.

    An absent `n` means the rows of the start's samples, or 1000 draws from a start without samples.
    """

    n: Size | None = None
    dt: Positive = 0.02
