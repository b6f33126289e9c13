"""What must be known to repeat a run? Versions, device, precision, seed and times, as one flat record."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("jaxflow", "jax", "jaxlib", "equinox", "diffrax", "numpy")


def now() -> str:
    """The present moment, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed_version(package: str) -> str:
    """The version of an installed package; a source tree that was only put on the path has none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def environment(*, precision: str, seed: int, started: str) -> dict[str, Any]:
    """The record of a run that starts now: `finished` and `seconds` are null until it ends."""
    # Asking for the device starts the accelerator, so jax is loaded only when a run really begins.
    import jax

    return {
        **{name: installed_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "precision": precision,
        "seed": seed,
        "started": started,
        "finished": None,
        "seconds": None,
    }
