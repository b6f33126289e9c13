"""Tokens as particles: how attention moves them, and the energy they descend."""

from jaxflow.measures import Cloud as Cloud
from jaxflow.measures import gauss_hermite as gauss_hermite
from jaxflow.measures import sample as sample
from jaxflow.particles.balance import Balance as Balance
from jaxflow.particles.balance import balance as balance
from jaxflow.particles.clusters import count_clusters as count_clusters
from jaxflow.particles.energy import dissipation as dissipation
from jaxflow.particles.energy import energy as energy
from jaxflow.particles.energy import mobility as mobility
from jaxflow.particles.flow import AttentionFlow as AttentionFlow
from jaxflow.particles.infinite import InfiniteHeads as InfiniteHeads
from jaxflow.particles.limit import AbstractLimit as AbstractLimit
from jaxflow.particles.limit import OrnsteinUhlenbeckLimit as OrnsteinUhlenbeckLimit
from jaxflow.particles.limit import uniform_energy as uniform_energy
from jaxflow.particles.limit_balance import LimitBalance as LimitBalance
from jaxflow.particles.limit_balance import limit_balance as limit_balance
from jaxflow.particles.order import order_parameter as order_parameter
from jaxflow.particles.pairing import PairingFlow as PairingFlow
from jaxflow.particles.tokens import cross_polytope as cross_polytope
from jaxflow.particles.tokens import equiangular as equiangular
from jaxflow.particles.tokens import equispaced as equispaced
from jaxflow.particles.tokens import octahedral as octahedral
from jaxflow.particles.tokens import uniform as uniform
from jaxflow.particles.tokens import von_mises_fisher as von_mises_fisher
