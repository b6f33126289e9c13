"""Steering: controls A, B, V, b in time that carry one Gaussian to another, or clouds of tokens to clouds."""

from jaxflow.control.attention_only import attention_only as attention_only
from jaxflow.control.construct import constant_linear as constant_linear
from jaxflow.control.construct import two_piece_linear as two_piece_linear
from jaxflow.control.energy import kinetic as kinetic
from jaxflow.control.energy import kinetic_energy as kinetic_energy
from jaxflow.control.geodesic import geodesic as geodesic
from jaxflow.control.optimise import Search as Search
from jaxflow.control.optimise import advance as advance
from jaxflow.control.optimise import begin as begin
from jaxflow.control.problem import Problem as Problem
from jaxflow.control.problem import effort as effort
from jaxflow.control.reachability import check_reachable as check_reachable
from jaxflow.control.steer import Plan as Plan
from jaxflow.control.steer import constructive_controls as constructive_controls
from jaxflow.control.steer import make_plan as make_plan
from jaxflow.control.steer import steer as steer
from jaxflow.control.token_checks import check_tokens_reachable as check_tokens_reachable
from jaxflow.control.token_problem import TokenProblem as TokenProblem
from jaxflow.control.token_search import TokenSearch as TokenSearch
from jaxflow.control.token_search import advance_tokens as advance_tokens
from jaxflow.control.token_search import begin_tokens as begin_tokens
from jaxflow.control.tokens import Stop as Stop
from jaxflow.control.tokens import TokenPlan as TokenPlan
from jaxflow.control.tokens import make_token_plan as make_token_plan
from jaxflow.control.tokens import steer_tokens as steer_tokens
