"""Exact placement: one option, one contiguous place for every unit, and the order of the calls.

`solve_placement` is the entry. Inside: `instance` compiles the problem; `relations` and `realise`
say which meshes can be disjoint together and where they then lie; `evaluate` values one choice of
options exactly; `bounds` and `reduce` prune; `chain` solves the simple forms without a solver;
`relative`, `capacity`, `memory`, `windows` and `objective` build the integer model that `driver`
runs; `descent` finds the first plans, `topk` the alternatives, `infeasible` the reason when there
is none.
"""

from planner.search.placement.result import PlacementResult, PlacementSolution, Shortage
from planner.search.placement.solve import solve_placement

__all__ = ["PlacementResult", "PlacementSolution", "Shortage", "solve_placement"]
