"""The physical limit of a step: work and depth, whatever the plan."""

from __future__ import annotations

from planner.cost.arrays import StrategyArrays
from planner.cost.calls import call_costs
from planner.schema import Call, DType, Workload
from planner.simulate.instance import Instance


def work_depth_bound_s(instance: Instance, staleness: int) -> float:
    """No plan on the cluster has a shorter step: max(W / (p x peak), D x latency), seconds.

    W counts useful FLOP only, each at the peak of the dtype that it runs in, on all devices of the
    cluster. D x latency is the longest chain of dependent rounds through the iteration, each at
    least one kernel latency long; consecutive iterations overlap when samples may be stale, so it
    binds synchronous plans only (Brent 1974; see docs/cost-model.md).
    """
    work_s = 0.0
    depth_s: dict[str, float] = {}
    for call in instance.calls:
        if call.kind == "environment":
            depth_s[call.name] = 0.0
            continue
        useful_flop, depth = _least(instance, call)
        dtype = dtype_of(instance.workload, call)
        peak = sum(
            group.devices * group.device.peak_flop_per_s.get(dtype, 0.0)
            for group in instance.cluster.groups
        )
        work_s += useful_flop / peak
        latency_s = min(group.device.kernel_latency_s for group in instance.cluster.groups)
        depth_s[call.name] = depth * latency_s
    if staleness > 0:
        return work_s
    return max(work_s, longest_chain_s(instance, depth_s))


def dtype_of(workload: Workload, call: Call) -> DType:
    """The precision that the workload asks for in a device call."""
    return workload.generate_dtype if call.kind == "generate" else workload.train_dtype


def _least(instance: Instance, call: Call) -> tuple[float, int]:
    """Useful FLOP, and the depth when every sequence has devices of its own."""
    group = instance.cluster.groups[0]
    widest = max(1, call.sequences // max(1, call.optimizer_steps))
    strategies = StrategyArrays.from_columns({"dp": widest}, 1)
    costs = call_costs(instance.context(call, group, 0), strategies)
    return float(costs.useful_flop[0]), int(costs.depth[0])


def longest_chain_s(instance: Instance, duration_s: dict[str, float]) -> float:
    """Length of the longest chain of dependent calls; a call without a duration takes none."""
    end_s: dict[str, float] = {}
    for call in instance.calls:
        before = [end_s[name] for name in instance.graph.predecessors(call.name)]
        end_s[call.name] = max(before, default=0.0) + duration_s.get(call.name, 0.0)
    return max(end_s.values())
