"""Relations of meshes and their places; bounds and fronts of the placement search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from placement_problems import GB, brute_force, problem, random_problem, unit

from planner.search.placement.bounds import option_bounds, step_bound
from planner.search.placement.evaluate import Evaluator
from planner.search.placement.fronts import fastest_mix, grow, priced, unit_fronts
from planner.search.placement.instance import Instance, compile_instance
from planner.search.placement.realise import realise
from planner.search.placement.reduce import below, by_load, floored, undominated
from planner.search.placement.relations import Relations
from planner.search.placement.relative import floor_units
from planner.search.problem import PlacementProblem, Unit


def instance_of(sizes: list[int], nodes: int, per_node: int = 1) -> Instance:
    units = tuple(unit(f"u{i}", (f"c{i}",), [(size, (1.0,), 0, 1)]) for i, size in enumerate(sizes))
    return compile_instance(
        problem(units, (), group_devices=(nodes * per_node,), group_devices_per_node=(per_node,))
    )


def all_relations(sizes: list[int], total: int) -> set[int]:
    """Masks of disjoint pairs of every placement of contiguous meshes on a line."""
    found = set()
    for starts in itertools.product(*(range(total - size + 1) for size in sizes)):
        mask = 0
        for bit, (a, b) in enumerate(itertools.combinations(range(len(sizes)), 2)):
            apart = starts[a] + sizes[a] <= starts[b] or starts[b] + sizes[b] <= starts[a]
            mask |= apart << bit
        found.add(mask)
    return found


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(6, 8))
@example([2, 2, 2, 3, 3], 6)
@settings(max_examples=40, deadline=None)
def test_maximal_relations_are_those_of_real_placements(sizes: list[int], total: int) -> None:
    instance = instance_of(sizes, total)
    keys = tuple((0, size) for size in sizes)
    maximal = Relations(instance).maximal(keys)
    real = all_relations(sizes, total)
    for mask in maximal:
        assert any(mask & other == mask for other in real)
        assert realise(instance, keys, mask, 0, [0.0] * len(sizes)).first is not None
    for other in real:
        assert any(other & mask == other for mask in maximal)


def test_ring_of_five_halves_is_no_relation() -> None:
    sizes = [4] * 5
    instance = instance_of(sizes, 8)
    ring = sum(instance.bit(i, (i + 1) % 5) for i in range(5))
    maximal = Relations(instance).maximal(((0, 4),) * 5)
    assert not any(mask & ring == ring for mask in maximal)
    places = realise(instance, ((0, 4),) * 5, ring, 0, [0.0] * 5)
    assert places.first is None
    assert places.exhaustive


@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 12]), min_size=2, max_size=4),
    st.integers(0, 2**6 - 1),
    st.integers(0, 2**6 - 1),
)
@settings(max_examples=80, deadline=None)
def test_realised_places_are_aligned_and_keep_the_relations(
    sizes: list[int], wanted: int, touched: int
) -> None:
    instance = instance_of(sizes, 4, per_node=4)
    keys = tuple((0, size) for size in sizes)
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    disjoint = wanted & (1 << len(pairs)) - 1
    touching = touched & ~disjoint & (1 << len(pairs)) - 1
    found = realise(instance, keys, disjoint, touching, [0.0] * len(sizes))
    starts = [range(0, 16 - size + 1, min(size, 4)) for size in sizes]

    def keeps(first: tuple[int, ...]) -> bool:
        for bit, (a, b) in enumerate(pairs):
            apart = first[a] + sizes[a] <= first[b] or first[b] + sizes[b] <= first[a]
            if (disjoint >> bit & 1 and not apart) or (touching >> bit & 1 and apart):
                return False
        return True

    if found.first is None:
        assert found.exhaustive
        assert not any(keeps(first) for first in itertools.product(*starts))
    else:
        assert keeps(found.first)
        assert all(start in allowed for start, allowed in zip(found.first, starts, strict=True))


def test_host_memory_sends_slices_to_different_nodes() -> None:
    instance = compile_instance(
        problem(
            tuple(unit(f"u{i}", (f"c{i}",), [(2, (1.0,), 0, 1)]) for i in range(2)),
            (),
            group_host_memory_bytes=(10 * GB,),
        )
    )
    keys = ((0, 2), (0, 2))
    assert realise(instance, keys, 1, 0, [4 * GB, 4 * GB]).first == (0, 2)
    assert realise(instance, keys, 1, 0, [6 * GB, 6 * GB]).first == (0, 4)


@given(st.integers(0, 2**32 - 1))
@example(8802563)
@settings(max_examples=60, deadline=None)
def test_bounds_are_below_every_plan_with_the_option(seed: int) -> None:
    small = random_problem(seed)
    instance = compile_instance(small)
    if any(len(rows) == 0 for rows in instance.options):
        return
    evaluator = Evaluator(instance)
    overall = step_bound(instance)
    each = option_bounds(instance)
    for choice in itertools.product(*(range(len(rows)) for rows in instance.options)):
        plan = evaluator.evaluate(choice)
        if plan is None:
            continue
        assert overall <= plan.value_s * (1 + 1e-9)
        for lower, row in zip(each, choice, strict=True):
            assert lower[row] <= plan.value_s * (1 + 1e-9)


def with_rows(whole: PlacementProblem, kept: Instance) -> PlacementProblem:
    """The problem with only the options that an instance kept."""
    units = []
    for u, rows in zip(whole.units, kept.options, strict=True):
        fields = {
            name: value[rows.origin] if isinstance(value, np.ndarray) else value
            for name, value in vars(u).items()
        }
        units.append(Unit(**fields))
    return PlacementProblem(**{**vars(whole), "units": tuple(units)})


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_dropped_options_cost_nothing(seed: int) -> None:
    small = random_problem(seed)
    instance = compile_instance(small)
    if any(len(rows) == 0 for rows in instance.options):
        return
    best = brute_force(small)
    assert brute_force(with_rows(small, undominated(instance))) == pytest.approx(best)
    target = (best - small.fixed_s) * 1.001 + 1e-9
    if math.isfinite(best):
        assert brute_force(with_rows(small, below(instance, target))) == pytest.approx(best)


def test_options_alike_after_rounding_are_kept_once() -> None:
    rows = [(8, (10.04, 5.01), 10, 20), (8, (10.01, 5.04), 10, 20), (8, (9.0, 7.0), 10, 20)]
    units = (unit("a", ("a", "b"), rows),)
    instance = compile_instance(problem(units, ()))
    assert len(floored(instance, 0.1, 64, False).options[0]) == 2
    assert len(floored(instance, 0.001, 64, False).options[0]) == 3
    assert by_load(instance).options[0].origin.tolist() == [0]


def test_ticks_are_rounded_down() -> None:
    assert floor_units([0.0, 0.99, 1.0, 2.5], 1.0).tolist() == [0, 0, 1, 2]
    values = np.random.default_rng(0).random(1000)
    assert (floor_units(values, 1e-3) * 1e-3 <= values).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_fastest_mix_of_one_mesh_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = []
    for i in range(3):
        rows = [
            (8, (float(rng.integers(1, 30)),), r := int(rng.integers(0, 40)), r + rng.integers(40))
            for _ in range(6)
        ]
        units.append(unit(f"u{i}", (f"c{i}",), rows))
    names = [u.name for u in units]
    share = tuple((names[0], name) for name in names[1:])
    instance = compile_instance(problem(tuple(units), (), must_share=share))
    best = math.inf
    for picked in itertools.product(*(range(len(rows)) for rows in instance.options)):
        chosen = [rows.take([row]) for rows, row in zip(instance.options, picked, strict=True)]
        need = sum(o.resident_bytes[0] for o in chosen) + max(o.extra_bytes[0] for o in chosen)
        if need <= 80 * GB:
            best = min(best, sum(float(o.time_s.sum()) for o in chosen))
    events = [frozenset(range(3))]
    found = fastest_mix(instance, 0, events, lambda t: t[..., 0], exact=True)
    assert (found is None) == (best == math.inf)
    if found is not None:
        assert found[0] == pytest.approx(best)
        parts = unit_fronts(instance, 0, events)[0, 8]
        quick = priced(instance, 0, parts, lambda t: t[..., 0])
        assert quick is None or quick[0] >= best - 1e-9
        front = grow(instance, 0, parts, lambda t: t[..., 0], best + 1e-6)
        assert front is not None
        assert front.time_s.min() == pytest.approx(best)
