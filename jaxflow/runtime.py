"""How this process computes: platform, precision, compilation cache, and whether it can be trusted.

The library never touches JAX's configuration; only applications do, once, through `configure`.
"""

import os
import pathlib
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from jaxflow.errors import InputError

WRONG_JAXLIB = ("0.10.2", "0.11.0", "0.11.1")
"""jaxlib releases that return wrong numbers on x86 CPUs (jax-ml/jax#39103)."""


def configure(
    *,
    platform: Literal["cpu", "gpu", "tpu"] | None = None,
    precision: Literal["float64", "float32"] = "float64",
    cache: bool = True,
    cpu_devices: int | None = None,
) -> None:
    """Choose device and precision for this process. Call before the first computation.

    Matrix products run at "highest" precision (the default on GPUs, TF32, inflates the number of adaptive
    steps). `cache` keeps compiled programs on disk, in `$JAX_COMPILATION_CACHE_DIR` or the user's cache folder.
    `cpu_devices` splits the CPU into so many devices, for `gaussian.ensemble(..., devices=jax.devices())`.

    Raises:
        InputError: the platform is not available here.
    """
    # XLA writes pages about instruction sets, as errors, whenever it loads its own compiled programs from disk.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    import jax

    if platform is not None:
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(platform, platform))
    if cpu_devices is not None:
        jax.config.update("jax_num_cpu_devices", cpu_devices)
    jax.config.update("jax_enable_x64", precision == "float64")
    jax.config.update("jax_default_matmul_precision", "highest")
    if cache:
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
        folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(home / "jaxflow" / "xla"))
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    try:
        jax.devices()
    except RuntimeError as error:
        raise InputError(
            "is not available on this machine",
            where="platform",
            got=platform,
            fix="leave --platform out, or install the extra: pip install 'jaxflow[cuda]' (or [tpu])",
        ) from error


@dataclass(frozen=True)
class Finding:
    """One thing `doctor` looked at: whether it is well, what was seen, and the cure if it is not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def doctor() -> list[Finding]:
    """Look at versions, device, precision and arithmetic of this process, one finding each."""
    return [_jax_version(), _device(), _precision(), _arithmetic(), _compiled_equals_eager()]


def _jax_version() -> Finding:
    jax, jaxlib = metadata.version("jax"), metadata.version("jaxlib")
    return Finding(
        "jax",
        jaxlib not in WRONG_JAXLIB,
        f"jax {jax}, jaxlib {jaxlib}",
        "this jaxlib returns wrong numbers on x86 CPUs (jax-ml/jax#39103): pip install 'jax!=0.10.2,!=0.11.0,!=0.11.1'",
    )


def _device() -> Finding:
    import jax

    devices = jax.devices()
    detail = f"{len(devices)} × {devices[0].device_kind} ({devices[0].platform}), {os.cpu_count()} CPU cores"
    return Finding("device", True, detail)


def _precision() -> Finding:
    import jax.numpy as jnp

    dtype = jnp.result_type(float)
    return Finding(
        "precision",
        dtype == jnp.float64,
        f"default floating type {dtype}",
        "call jax.config.update('jax_enable_x64', True) before computing, or pass --precision float64",
    )


def _arithmetic() -> Finding:
    """The bulk sum of exponentials must agree with NumPy's: fast-math or TF32 would show here."""
    import jax.numpy as jnp
    import numpy as np

    x = np.random.default_rng(0).normal(size=(512, 64))
    x = x.astype(jnp.result_type(float))
    exact = np.exp(x @ x.T / 64).sum(-1)
    error = float(np.max(np.abs(np.asarray(jnp.exp(jnp.asarray(x) @ x.T / 64).sum(-1)) / exact - 1)))
    limit = 200 * float(np.finfo(x.dtype).eps)
    return Finding(
        "arithmetic",
        error <= limit,
        f"matrix product and exp agree with NumPy to {error:.1e} (limit {limit:.1e})",
        "set jax.config.update('jax_default_matmul_precision', 'highest')",
    )


def compiled_gap(n: int = 16385, batch: int = 2) -> float:
    """Largest relative gap between the compiled and the eager result of a vmapped matrix-vector product followed
    by a reduction: the program that jaxlib 0.10.2 gets wrong by 8e-3 at n = 16385."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(n, 3)))
    u = jnp.asarray(rng.normal(size=(batch, 3)))

    def f(v):
        return jnp.sum((X @ v) ** 2)

    eager = jnp.stack([f(v) for v in u])
    return float(jnp.max(jnp.abs(jax.jit(jax.vmap(f))(u) / eager - 1)))


def _compiled_equals_eager() -> Finding:
    import jax.numpy as jnp

    gap = compiled_gap()
    limit = 1e-12 if jnp.result_type(float) == jnp.float64 else 1e-4
    return Finding(
        "compiled = eager",
        gap <= limit,
        f"vmapped product and reduction at n = 16385: relative gap {gap:.1e}",
        "this jaxlib compiles wrong code for this processor: install another version",
    )
