"""`solve`, compiled, so that tests which differ in values only share one program."""

import equinox as eqx

from jaxflow.solve import solve

run = eqx.filter_jit(solve)
