"""One door to two back-ends: fixed steps in a scan, adaptive steps by diffrax. Each is the other's oracle."""

from jaxflow.solve.flow import AbstractFlow as AbstractFlow
from jaxflow.solve.grid import Grid as Grid
from jaxflow.solve.grid import make_grid as make_grid
from jaxflow.solve.march import Carry as Carry
from jaxflow.solve.march import begin as begin
from jaxflow.solve.march import march as march
from jaxflow.solve.methods import RK4 as RK4
from jaxflow.solve.methods import AbstractMethod as AbstractMethod
from jaxflow.solve.methods import Dopri8 as Dopri8
from jaxflow.solve.methods import Euler as Euler
from jaxflow.solve.methods import Heun as Heun
from jaxflow.solve.methods import Kvaerno5 as Kvaerno5
from jaxflow.solve.methods import Tsit5 as Tsit5
from jaxflow.solve.observe import AbstractObservable as AbstractObservable
from jaxflow.solve.observe import Observe as Observe
from jaxflow.solve.solution import Solution as Solution
from jaxflow.solve.solution import Status as Status
from jaxflow.solve.solve import solve as solve
from jaxflow.solve.weights import sample_weights as sample_weights
