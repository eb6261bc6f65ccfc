"""The integer model of the fleet problem.

Time is counted in ticks. Durations and releases are rounded down and due dates up, so that every
schedule has a counterpart in the model that is no worse: the model's bound holds in true seconds.

- Each task has one *variant*: a share, with its weights loaded or kept.
- In each node group, the tasks are rectangles in nodes x time that do not overlap.
- A task keeps weights only where tasks with the same weights hand them over: a *handover* is a
  rectangle from the end of such a task to the start of this one, within the nodes of both, where
  nothing else runs. The handovers of a task that loads nothing cover all its nodes.
- Slots are a cumulative resource. So are the nodes of a group, which no overlap implies; it gives
  the solver its area reasoning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from planner.fleet.bounds import heads
from planner.fleet.problem import FleetProblem, Key, Option, Schedule

_ROUND = 1e-9
"""Float noise of a quotient that is a whole number."""


@dataclass(frozen=True)
class Variant:
    """One way to run a task."""

    option: int
    kept: bool
    """The nodes hold the weights already."""
    chosen: Any
    """Boolean variable."""
    ticks: int


@dataclass
class Model:
    """The CP model and its variables."""

    problem: FleetProblem
    tick_s: float
    horizon: int
    cp: Any
    start: list[Any]
    end: list[Any]
    variants: list[list[Variant]]
    node: list[dict[int, Any]]
    """First node of each task in each group that it may run in."""
    makespan: Any
    tardiness: Any
    """Weighted, in units of tick_s / weight_scale."""
    weight_scale: float
    objective_axis: int = 0


def build(problem: FleetProblem, tick_s: float, horizon_s: float) -> Model:
    """Variables and constraints; the objective is set by `minimise`."""
    from ortools.sat.python import cp_model

    cp = cp_model.CpModel()
    horizon = math.ceil(horizon_s / tick_s) + 1
    tasks = range(len(problem.tasks))
    head = heads(problem)
    start = [cp.new_int_var(down(head[t], tick_s), horizon, f"start_{t}") for t in tasks]
    end = [cp.new_int_var(down(head[t], tick_s), horizon, f"end_{t}") for t in tasks]
    makespan = cp.new_int_var(0, horizon, "makespan")
    scale = _weight_scale(problem)
    model = Model(
        problem, tick_s, horizon, cp, start, end, [], [], makespan, None, weight_scale=scale
    )
    _add_variants(model)
    handovers = _add_handovers(model)
    _add_nodes(model, handovers)
    _add_slots(model)
    for first, then in problem.edges:
        cp.add(end[first] <= start[then])
    cp.add_max_equality(makespan, end)
    model.tardiness = _tardiness(model)
    return model


def minimise(model: Model, axis: int, most: tuple[int, int] | None = None) -> None:
    """Minimise the makespan (axis 0) or the tardiness (axis 1) with the other at most `most[1]`.

    `most` is (axis, largest value in the model's units).
    """
    if most is not None:
        model.cp.add((model.makespan, model.tardiness)[most[0]] <= most[1])
    model.objective_axis = axis
    model.cp.minimize((model.makespan, model.tardiness)[axis])


def unit_s(model: Model, axis: int) -> float:
    """Seconds of one unit of an objective of the model."""
    return model.tick_s if axis == 0 else model.tick_s / model.weight_scale


def hint(model: Model, schedule: Schedule) -> None:
    """Start the solver from a known schedule."""
    for t, run in enumerate(schedule.runs):
        option = model.problem.tasks[t].options[run.option]
        model.cp.add_hint(model.start[t], down(run.start_s, model.tick_s))
        model.cp.add_hint(model.node[t][option.group], run.first_node)
        for each in model.variants[t]:
            kept = run.setup_s == 0 and option.setup_s > 0
            model.cp.add_hint(each.chosen, each.option == run.option and each.kept == kept)


def down(time_s: float, tick_s: float) -> int:
    """Whole ticks in a time."""
    return math.floor(time_s / tick_s + _ROUND)


def up(time_s: float, tick_s: float) -> int:
    """Ticks that cover a time."""
    return math.ceil(time_s / tick_s - _ROUND)


def _add_variants(model: Model) -> None:
    problem, cp = model.problem, model.cp
    for t, task in enumerate(problem.tasks):
        variants = []
        for o, option in enumerate(task.options):
            ways = [(False, option.run_s + option.setup_s)]
            if option.setup_s > 0 and not problem.must_load[t]:
                ways.append((True, option.run_s))
            for kept, hold_s in ways:
                chosen = cp.new_bool_var(f"task_{t}_option_{o}{'_kept' if kept else ''}")
                variants.append(Variant(o, kept, chosen, down(hold_s, model.tick_s)))
        cp.add_exactly_one(each.chosen for each in variants)
        hold = sum(each.ticks * each.chosen for each in variants)
        cp.add(model.end[t] == model.start[t] + hold)
        model.variants.append(variants)
        groups = {option.group for option in task.options}
        model.node.append(
            {
                group: cp.new_int_var(
                    0,
                    problem.group_nodes[group]
                    - min(each.nodes for each in task.options if each.group == group),
                    f"node_{t}_{group}",
                )
                for group in sorted(groups)
            }
        )


def _option(model: Model, task: int, variant: Variant) -> Option:
    return model.problem.tasks[task].options[variant.option]


def _width(model: Model, task: int, group: int) -> Any:
    """Nodes that the task has in the group: 0 when it runs elsewhere."""
    return sum(
        _option(model, task, each).nodes * each.chosen
        for each in model.variants[task]
        if _option(model, task, each).group == group
    )


def _add_handovers(model: Model) -> dict[int, list[tuple[Any, Any]]]:
    """Rectangles (nodes, time) of each group in which weights stay on the nodes."""
    problem, cp = model.problem, model.cp
    found: dict[int, list[tuple[Any, Any]]] = {g: [] for g in range(len(problem.group_nodes))}
    for j, task in enumerate(problem.tasks):
        if not any(each.kept for each in model.variants[j]):
            continue
        before = [
            i
            for i, other in enumerate(problem.tasks)
            if i != j and other.weights == task.weights and j not in problem.ancestors[i]
        ]
        for group, node_j in model.node[j].items():
            kept = sum(
                _option(model, j, each).nodes * each.chosen
                for each in model.variants[j]
                if each.kept and _option(model, j, each).group == group
            )
            widths = []
            for i in before:
                if group not in model.node[i]:
                    continue
                given, width, box = _handover(model, i, j, group, node_j)
                widths.append(width)
                found[group].append(box)
                # Only a task that keeps its weights is handed any.
                cp.add_implication(given, _in_group(model, j, group))
            cp.add(sum(widths) >= kept)
    return found


def _handover(model: Model, i: int, j: int, group: int, node_j: Any) -> tuple[Any, Any, Any]:
    """Nodes on which task i leaves its weights to task j: (whether, how many, rectangle).

    The rectangle exists only while the weights wait: boxes of no length next to tasks made the
    presolve of OR-tools 9.15 cut off the optimum (found by brute force).
    """
    cp, nodes = model.cp, model.problem.group_nodes[group]
    name = f"handover_{i}_{j}_{group}"
    node_i = model.node[i][group]
    given, waits = cp.new_bool_var(name), cp.new_bool_var(f"{name}_waits")
    first = cp.new_int_var(0, nodes - 1, f"{name}_node")
    width = cp.new_int_var(0, nodes, f"{name}_nodes")
    stop = cp.new_int_var(0, nodes, f"{name}_stop")
    wait = cp.new_int_var(1, model.horizon, f"{name}_ticks")
    cp.add(width == 0).only_enforce_if(given.negated())
    cp.add(width >= 1).only_enforce_if(given)
    for task, node in ((i, node_i), (j, node_j)):
        cp.add(first >= node).only_enforce_if(given)
        cp.add(first + width <= node + _width(model, task, group)).only_enforce_if(given)
    cp.add_implication(given, _in_group(model, i, group))
    cp.add_implication(waits, given)
    cp.add(model.start[j] == model.end[i]).only_enforce_if([given, waits.negated()])
    across = cp.new_optional_interval_var(first, width, stop, waits, f"{name}_x")
    along = cp.new_optional_interval_var(model.end[i], wait, model.start[j], waits, f"{name}_t")
    return given, width, (across, along)


def _in_group(model: Model, task: int, group: int) -> Any:
    """A Boolean that is true only if the task runs in the group."""
    inside = model.cp.new_bool_var("")
    chosen = [
        each.chosen for each in model.variants[task] if _option(model, task, each).group == group
    ]
    model.cp.add_bool_or(chosen).only_enforce_if(inside)
    return inside


def _add_nodes(model: Model, handovers: dict[int, list[tuple[Any, Any]]]) -> None:
    """No two tasks share a node at a time, and nothing runs where weights wait for a task."""
    problem, cp = model.problem, model.cp
    for group, nodes in enumerate(problem.group_nodes):
        across, along, demands = [], [], []
        for t in range(len(problem.tasks)):
            for each in model.variants[t]:
                option = _option(model, t, each)
                if option.group != group:
                    continue
                node = model.node[t][group]
                cp.add(node <= nodes - option.nodes).only_enforce_if(each.chosen)
                if each.ticks == 0:
                    continue  # what takes no tick is in nobody's way
                across.append(
                    cp.new_optional_fixed_size_interval_var(node, option.nodes, each.chosen, "")
                )
                along.append(
                    cp.new_optional_fixed_size_interval_var(
                        model.start[t], each.ticks, each.chosen, ""
                    )
                )
                demands.append(option.nodes)
        if not across:
            continue
        cp.add_cumulative(along, demands, nodes)
        boxes = handovers[group]
        cp.add_no_overlap_2d(
            [*across, *(box[0] for box in boxes)], [*along, *(box[1] for box in boxes)]
        )


def _add_slots(model: Model) -> None:
    problem, cp = model.problem, model.cp
    if problem.slots is None:
        return
    most = sum(max(option.slots for option in task.options) for task in problem.tasks)
    if most <= problem.slots:
        return
    intervals, demands = [], []
    for t in range(len(problem.tasks)):
        for each in model.variants[t]:
            slots = _option(model, t, each).slots
            if slots and each.ticks:
                intervals.append(
                    cp.new_optional_fixed_size_interval_var(
                        model.start[t], each.ticks, each.chosen, ""
                    )
                )
                demands.append(slots)
    cp.add_cumulative(intervals, demands, problem.slots)


def _weight_scale(problem: FleetProblem) -> float:
    """What weights are multiplied by before they are rounded down to whole numbers."""
    weights = [job.weight for job in problem.jobs]
    largest = max(weights, default=0.0)
    if largest <= 0 or (all(w == int(w) for w in weights) and largest <= 1e6):
        return 1.0
    return 1e4 / largest


def _tardiness(model: Model) -> Any:
    problem, cp = model.problem, model.cp
    terms = []
    limit = 0
    for j, job in enumerate(problem.jobs):
        weight = math.floor(job.weight * model.weight_scale + _ROUND)
        if job.due_s is None or weight <= 0:
            continue
        late = cp.new_int_var(0, model.horizon, f"late_{j}")
        due = up(job.due_s, model.tick_s)
        for t, task in enumerate(problem.tasks):
            if task.job == j:
                cp.add(late >= model.end[t] - due)
        terms.append(weight * late)
        limit += weight * model.horizon
    total = cp.new_int_var(0, limit, "tardiness")
    cp.add(total >= sum(terms))
    return total


def times_s(problem: FleetProblem) -> list[float]:
    """All times that the problem is made of."""
    found = [job.due_s for job in problem.jobs if job.due_s is not None]
    for task in problem.tasks:
        found.append(task.release_s)
        for option in task.options:
            found += [option.run_s, option.setup_s]
    return found


def bound_s(model: Model, value: float) -> float:
    """Seconds that a bound of the model's objective proves."""
    return max(0.0, value) * unit_s(model, model.objective_axis)


def as_units(model: Model, key: Key, axis: int) -> int:
    """Largest value of an objective in the model that a schedule of `key` can have."""
    return down(key[axis], unit_s(model, axis))
