"""The sums over pairs as one GPU kernel (`running`), behind the interface of all kernels."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted
from jaxflow.attention.chunked import Chunked
from jaxflow.errors import InputError


@final
class Pallas(AbstractKernel):
    """One kernel per head and block of queries, for GPUs: float32, O(h n) memory, O(h n m d) time.

    Derivatives of all orders are those of `Chunked`, which recomputes the pairs; second moments are computed by it too.
    It has been tested by interpretation, and compiled for CUDA as far as Triton; its authors have not run it on a GPU.

    Args:
        bfloat16: round queries and keys of the logits to bfloat16; sums and means stay float32. A logit is then off
            by up to 0.008 |q||x|.
        interpret: run the kernel by interpretation, on any device; None: wherever there is no GPU. Slow.

    Raises:
        InputError: tokens that are not float32.
    """

    bfloat16: bool = eqx.field(static=True, default=False)
    interpret: bool | None = eqx.field(static=True, default=None)

    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        if x.dtype != jnp.float32:
            raise InputError("works in single precision", where="Pallas", got=x.dtype, fix="take Chunked(), or float32")
        if second:
            return Chunked()(q, x, log_w, second=True, causal=causal)
        interpret = jax.default_backend() != "gpu" if self.interpret is None else self.interpret
        from jaxflow.attention.running import attend

        return attend(q, x, log_w, causal, self.bfloat16, interpret)
