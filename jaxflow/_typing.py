"""Names for array shapes that several floors use.

Letters: n tokens, d dimension, h heads, r rank, k segments, t saved times.
"""

from typing import TypeAlias

from jaxtyping import Array, Bool, Float, Int, Key

Scalar: TypeAlias = Float[Array, ""]
Flag: TypeAlias = Bool[Array, ""]
Count: TypeAlias = Int[Array, ""]
Real: TypeAlias = float | int | Float[Array, ""]
PRNGKey: TypeAlias = Key[Array, ""]
