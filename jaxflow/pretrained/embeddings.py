"""From token numbers or pixels to the first hidden state:

words    x_i = LN(E[t_i] + P[i] + S[0])                  tables of words, positions, segments
patches  x = (CLS, distillation?, W patch + b …) + P     positions resized to the image, where the model does so
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxflow._checks import check_same_dtype, is_concrete
from jaxflow.errors import InputError
from jaxflow.pretrained.parts import LayerNorm


@final
class WordEmbedding(eqx.Module):
    """Token numbers to hidden states.

    Attributes:
        table: E, (v, d).
        positions: P, (p, d); None: positions act inside attention.
        segments: S, (s, d); every token gets S[0].
        norm: LN.
    """

    table: Float[Array, "v d"]
    positions: Float[Array, "p d"] | None
    segments: Float[Array, "s d"] | None
    norm: LayerNorm
    longest: int = eqx.field(static=True)

    def __call__(self, ids: Int[Array, " n"]) -> Float[Array, "n d"]:
        if is_concrete(ids) and not bool(((ids >= 0) & (ids < len(self.table))).all()):
            raise InputError(
                "names words that are not in the table",
                where="ids",
                got=f"{int(ids.min())} to {int(ids.max())}",
                expected=f"0 to {len(self.table) - 1}",
            )
        return self.place(self.table[ids])

    def place(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """LN(x_i + P[i] + S[0]) for word vectors x from anywhere."""
        n = x.shape[0]
        if n > self.longest:
            raise InputError(
                "is longer than the position table",
                where="sequence",
                got=f"{n} tokens",
                expected=f"at most {self.longest}",
                fix="cut the sequence; hidden states, which carry no position, may be longer",
            )
        if self.positions is not None:
            x = x + self.positions[:n]
        if self.segments is not None:
            x = x + self.segments[:1]
        return self.norm(x)


@final
class PatchEmbedding(eqx.Module):
    """An image to hidden states.

    Attributes:
        kernel: W, (d, c, p, p), and bias b, (d,): patches of p × p pixels do not overlap.
        extra: CLS, and the distillation token where there is one, (e, d).
        positions: P, (e + g², d), for a grid of g × g patches.
        resize: whether P is resized (bicubically) to images of another size; else they are refused.
    """

    kernel: Float[Array, "d c p p"]
    bias: Float[Array, " d"]
    extra: Float[Array, "e d"]
    positions: Float[Array, "m d"]
    resize: bool = eqx.field(static=True)

    def __call__(self, pixels: Float[Array, "c H W"]) -> Float[Array, "n d"]:
        check_same_dtype({"pixels": pixels, "weights": self.kernel})
        d, c, p, _ = self.kernel.shape
        grid = round((self.positions.shape[0] - self.extra.shape[0]) ** 0.5)
        rows, columns = pixels.shape[1] // p, pixels.shape[2] // p
        fits = self.resize or pixels.shape[1:] == (grid * p, grid * p)
        if pixels.shape[0] != c or rows * columns == 0 or not fits:
            raise InputError(
                "does not fit the position table",
                where="pixels",
                got=pixels.shape,
                expected=f"({c}, H, W) with H, W ≥ {p}" if self.resize else f"({c}, {grid * p}, {grid * p})",
            )
        patches = jax.lax.conv(pixels[None], self.kernel, (p, p), "VALID")[0].reshape(d, -1).T + self.bias[None]
        P = self.positions
        if (rows, columns) != (grid, grid):
            e = self.extra.shape[0]
            table = P[e:].reshape(grid, grid, d)
            R, C = (jnp.asarray(bicubic(grid, m), P.dtype) for m in (rows, columns))
            P = jnp.concatenate([P[:e], jnp.einsum("ri,cj,ijd->rcd", R, C, table).reshape(-1, d)])
        return jnp.concatenate([self.extra, patches]) + P


def bicubic(old: int, new: int) -> np.ndarray:
    """The (new, old) matrix that resizes one axis: cubic convolution, a = −3/4, ends repeated, pixel centres matched.

    Source: R. G. Keys, IEEE Trans. ASSP 29 (1981), equation (4), with the a that PyTorch takes.
    """
    a = -0.75
    at = (np.arange(new) + 0.5) * old / new - 0.5
    base = np.floor(at).astype(int)
    matrix = np.zeros((new, old))
    for shift in (-1, 0, 1, 2):
        s = np.abs(at - base - shift)
        near = (a + 2) * s**3 - (a + 3) * s**2 + 1
        far = a * (s**3 - 5 * s**2 + 8 * s - 4)
        np.add.at(matrix, (np.arange(new), np.clip(base + shift, 0, old - 1)), np.where(s <= 1, near, far))
    return matrix
