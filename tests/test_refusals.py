"""Mistakes that the tests' run-time type checker would catch first: in a process without it, as users have.

Each line of the table is one mistake and parts of the message it must raise, with what is wrong and the fix.
"""

import subprocess
import sys

CODE = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jaxflow.errors import InputError
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Cloud, Gaussian
from jaxflow.particles import AttentionFlow
from jaxflow.solve import solve
from jaxflow.weights import Constant, Oscillating

from jaxflow.control import steer_tokens
from jaxflow.solve import Tsit5
from jaxflow.transport import jko

cloud = Cloud(jnp.eye(3))
tied = Constant(D=np.eye(3))
moving, start = MomentFlow(Constant(A=np.eye(2))), Gaussian(jnp.zeros(2), jnp.eye(2))
mistakes = [
    (lambda: Gaussian.from_covariance(jnp.zeros(2), jnp.eye(3)),
     ("covariance", "wrong shape", "(3, 3)", "(2, 2)")),
    (lambda: Gaussian(jnp.zeros(()), jnp.eye(1)), ("mean", "must be a vector")),
    (lambda: Gaussian(jnp.zeros(2), jnp.eye(3)), ("factor", "wrong shape", "(2, r)")),
    (lambda: Gaussian(jnp.zeros(2), jnp.eye(2, dtype=jnp.float32)), ("mixes precisions", "float32")),
    (lambda: Gaussian([0.0, np.nan], jnp.eye(2)), ("mean", "1 of 2 are NaN or infinite")),
    (lambda: Cloud(jnp.ones((2, 2)), jnp.zeros(3)), ("log_weights", "wrong shape", "(2,)")),
    (lambda: Oscillating(initial=np.eye(3), phase="random"), ("phase", "random", "locked", "spread")),
    (lambda: AttentionFlow(tied, law="hard", direction="ascend"), ("law", "hard", "softmax, unnormalized")),
    (lambda: solve(moving, start, t1="soon"), ("t1", "must be a plain number", "str")),
    (
        lambda: jax.jit(lambda t1: solve(moving, start, t1=t1).t_end)(1.0),
        ("t1", "known before tracing", "scale the weights"),
    ),
    (lambda: AttentionFlow(tied, direction="down"), ("direction", "down", "descend")),
    (lambda: steer_tokens(cloud, cloud, loss="bures"), ("loss", "bures", "sliced, energy, sinkhorn")),
    (lambda: steer_tokens(cloud, cloud, method="gauss-newton"), ("method", "gauss-newton", "adam, lbfgs")),
    (lambda: steer_tokens(cloud, cloud, law="hardmax"), ("law", "hardmax", "softmax, unnormalized")),
    (lambda: steer_tokens(cloud, cloud, integrator=Tsit5()), ("integrator", "Tsit5", "fixed steps")),
    (
        lambda: jko(cloud, tied, tau=0.1, t1=1.0, mobility="explicit"),
        ("mobility", "explicit", '"frozen" or "implicit"'),
    ),
    (lambda: steer_tokens(cloud, "cloud"), ("target", "str", "sequence of Clouds")),
]
for mistake, parts in mistakes:
    try:
        mistake()
    except InputError as error:
        missing = [part for part in parts if part not in str(error)]
        assert not missing, (missing, str(error))
    else:
        raise AssertionError(parts)
print("all refused")
"""


def test_mistakes_are_refused_without_the_type_checker():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120)
    assert "all refused" in done.stdout, done.stderr
