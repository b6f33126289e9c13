"""Benchmarks run in float64 at full matrix precision, as the command line does, with a CPU device for every core."""

import os

from jaxflow.runtime import configure

configure(precision="float64", cache=False, cpu_devices=os.cpu_count())
