"""Laws that every schedule obeys, and the exact search against trying everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleet_problems import all_keys, front, small_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.fleet.api import OPTIMIZERS
from planner.fleet.bounds import lower_bounds
from planner.fleet.check import violations
from planner.fleet.decode import decode
from planner.fleet.optimizer import Objective, Search
from planner.fleet.problem import FleetProblem, Option, Run, Schedule, Task
from planner.search.placement.clock import Clock

SEEDS = st.integers(min_value=0, max_value=10**6)


def search(
    problem: FleetProblem,
    optimizer: str,
    objective: Objective,
    *,
    budget: int | None = None,
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 0.0),
) -> Search:
    found = Search(
        problem, objective, budget=budget, clock=Clock(None, None), seed=seed, bounds=bounds
    )
    OPTIMIZERS[optimizer](found)
    return found


@given(seed=SEEDS, data=st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_is_decided_the_decoded_schedule_is_feasible(
    seed: int, data: st.DataObject
) -> None:
    problem = small_problem(seed, tasks=7, nodes=6)
    options = [data.draw(st.integers(0, len(task.options) - 1)) for task in problem.tasks]
    order = data.draw(st.permutations(range(len(problem.tasks))))
    ranks = [data.draw(st.integers(0, 4)) for _ in problem.tasks]
    schedule = decode(problem, options, order, ranks)
    assert violations(problem, schedule) == []
    assert [run.option for run in schedule.runs] == options


@given(seed=SEEDS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_placing_a_schedules_tasks_by_start_makes_none_end_later(
    seed: int, data: st.DataObject
) -> None:
    problem = small_problem(seed, tasks=7, nodes=6)
    options = [data.draw(st.integers(0, len(task.options) - 1)) for task in problem.tasks]
    order = data.draw(st.permutations(range(len(problem.tasks))))
    first = decode(problem, options, order, [data.draw(st.integers(0, 4)) for _ in order])
    by_start = sorted(order, key=lambda t: first.runs[t].start_s)
    again = decode(problem, options, by_start, first_nodes=[r.first_node for r in first.runs])
    for before, after in zip(first.runs, again.runs, strict=True):
        assert after.end_s <= before.end_s + 1e-9


def test_every_kind_of_violation_is_seen() -> None:
    share = Option(group=0, nodes=2, run_s=4.0, setup_s=1.0, slots=2)
    problem = replace(
        small_problem(0),
        group_nodes=(4,),
        slots=3,
        tasks=(Task(0, 0, 0.0, (share,)), Task(0, 1, 2.0, (share,))),
        edges=((0, 1),),
    )
    good = decode(problem, [0, 0], [0, 1])
    assert violations(problem, good) == []

    def with_run(task: int, **changes: float | int) -> list[str]:
        runs = list(good.runs)
        runs[task] = replace(runs[task], **changes)
        return violations(problem, Schedule(tuple(runs), good.makespan_s, 0.0))

    def seen(wrong: list[str], words: str) -> bool:
        return any(words in line for line in wrong)

    assert seen(with_run(0, first_node=3), "outside its group")
    assert seen(with_run(1, start_s=1.0, end_s=6.0), "before its release")
    assert seen(with_run(1, start_s=3.0, end_s=8.0), "before task 0 ends")
    assert seen(with_run(1, setup_s=0.0, end_s=9.0), "does not pay its set-up")
    assert seen(with_run(1, end_s=8.0), "does not last")
    early = with_run(1, start_s=2.0, end_s=7.0)
    assert seen(early, "use one node at a time")
    assert seen(with_run(1, start_s=2.0, end_s=7.0, first_node=2), "4 slots of 3")
    assert seen(violations(problem, replace(good, makespan_s=1.0)), "objectives")


def test_weights_are_kept_only_where_every_node_holds_them() -> None:
    def option(nodes: int) -> Option:
        return Option(group=0, nodes=nodes, run_s=2.0, setup_s=5.0)

    same = FleetProblem(
        group_nodes=(3,),
        slots=None,
        jobs=small_problem(0).jobs,
        tasks=(Task(0, 7, 0.0, (option(2),)), Task(0, 7, 0.0, (option(2), option(3)))),
        edges=((0, 1),),
    )
    assert [run.setup_s for run in decode(same, [0, 0], [0, 1]).runs] == [5.0, 0.0]
    assert [run.setup_s for run in decode(same, [0, 1], [0, 1]).runs] == [5.0, 5.0]
    other = replace(same, tasks=(same.tasks[0], replace(same.tasks[1], weights=8)))
    assert [run.setup_s for run in decode(other, [0, 0], [0, 1]).runs] == [5.0, 5.0]


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_cp_sat_and_bounds_agree_with_trying_everything(seed: int) -> None:
    problem = small_problem(seed)
    best = front(all_keys(problem))
    low = lower_bounds(problem)
    assert low[0] <= best[0][0] + 1e-9
    assert low[1] <= best[-1][1] + 1e-9
    for objective, axis, key in (("makespan", 0, best[0]), ("tardiness", 1, best[-1])):
        found = search(problem, "cp-sat", objective)  # type: ignore[arg-type]
        assert violations(problem, found.best) == []
        assert found.best.key[axis] == pytest.approx(key[axis])
        assert found.bounds[axis] == pytest.approx(key[axis])
    whole = search(problem, "cp-sat", "pareto")
    assert [each.key for each in whole.front] == best
    assert whole.front_proven


@given(seed=SEEDS, stretch=st.floats(0.1, 3.0))
@settings(max_examples=15, deadline=None)
def test_the_bound_is_never_above_a_schedule_even_with_rounded_times(
    seed: int, stretch: float
) -> None:
    whole = small_problem(seed)
    problem = replace(
        whole,
        tasks=tuple(
            replace(
                task,
                release_s=task.release_s * stretch,
                options=tuple(
                    replace(each, run_s=each.run_s * stretch, setup_s=each.setup_s * stretch)
                    for each in task.options
                ),
            )
            for task in whole.tasks
        ),
    )
    best = front(all_keys(whole))[0][0] * stretch
    found = search(problem, "cp-sat", "makespan")
    assert found.bounds[0] <= best * (1 + 1e-9)
    assert best <= found.best.makespan_s * (1 + 1e-9)
    assert found.best.makespan_s <= best * 1.001


def test_slots_alone_keep_jobs_apart() -> None:
    share = Option(group=0, nodes=1, run_s=10.0, setup_s=0.0, slots=3)
    problem = FleetProblem(
        group_nodes=(4,),
        slots=5,
        jobs=small_problem(0).jobs[:1] * 2,
        tasks=(Task(0, 0, 0.0, (share,)), Task(1, 1, 0.0, (share,))),
    )
    for optimizer in OPTIMIZERS:
        assert search(problem, optimizer, "makespan", budget=20).best.makespan_s == 20.0
    assert isinstance(decode(problem, [0, 0], [0, 1]).runs[0], Run)
