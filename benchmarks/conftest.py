"""Benchmarks run in float64 at full matrix precision, as the command line does."""

from jaxflow.runtime import configure

configure(precision="float64", cache=False)
