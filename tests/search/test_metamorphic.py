"""Laws between whole answers: a better cluster or a freer space never gives a slower best plan.

Each answer is within the gap of its bound, so a law may miss by the gap. Problems are drawn from a
handful of small ones; answers are kept, since many laws compare with the same one.
"""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.schema import CallSpace, Cluster, NodeGroup, SearchSpace, Workload
from planner.search.api import GAP

SLACK = 1 + GAP + 1e-6
PROBLEMS = ("grpo", "long", "ppo")
few = settings(max_examples=5, deadline=None, derandomize=True)


@cache
def workload(name: str) -> Workload:
    options: dict[str, object] = {"prompts": 64, "samples": 8, "response_max": 2048}
    models = {"actor": "Qwen/Qwen3-4B"}
    if name == "grpo":
        options |= {"algorithm": "grpo", "response_mean": 700.0}
    elif name == "long":
        options |= {"algorithm": "grpo", "response_mean": 3000.0, "response_max": 8192}
        options |= {"kl_weight": 0.01}
    else:
        models |= {"critic": "Qwen/Qwen3-1.7B", "reward": "Qwen/Qwen3-0.6B"}
        options |= {"algorithm": "ppo", "response_mean": 700.0}
    found = problem_from(None, models=models, cluster="h100:1x8", **options)
    return found.workload


@cache
def space(name: str = "verl-fsdp") -> SearchSpace:
    return load_space(name)


def cluster(nodes: int) -> Cluster:
    return planner.parse_cluster(f"h100:{nodes}x8")


_ANSWERS: dict[tuple[str, str, str], float] = {}


def best_s(name: str, on: Cluster, within: SearchSpace | None = None, **changes: object) -> float:
    """The best step time; inf when nothing fits."""
    within = within or space()
    asked = workload(name).model_copy(update=changes)
    key = asked.model_dump_json(), on.model_dump_json(), within.model_dump_json()
    if key not in _ANSWERS:
        try:
            answer = planner.plan(asked, on, space=within, top=1)
            assert answer.search.optimal
            _ANSWERS[key] = answer.plans[0].step_time_s
        except planner.InfeasibleError:
            _ANSWERS[key] = float("inf")
    return _ANSWERS[key]


def with_device(on: Cluster, **factors: float) -> Cluster:
    """The cluster with fields of its devices multiplied."""
    groups = []
    for group in on.groups:
        changes = {}
        for name, factor in factors.items():
            value = getattr(group.device, name)
            changes[name] = type(value)(value * factor)
        device = group.device.model_copy(update=changes)
        groups.append(group.model_copy(update={"device": device}))
    return on.model_copy(update={"groups": tuple(groups)})


@few
@given(st.sampled_from(PROBLEMS), st.integers(2, 3))
def test_more_devices_are_never_slower(name: str, nodes: int) -> None:
    assert best_s(name, cluster(nodes + 1)) <= best_s(name, cluster(nodes)) * SLACK


@few
@given(st.sampled_from(PROBLEMS), st.sampled_from([1.1, 1.5]))
def test_more_memory_is_never_slower(name: str, factor: float) -> None:
    larger = with_device(cluster(2), memory_bytes=factor)
    assert best_s(name, larger) <= best_s(name, cluster(2)) * SLACK


@few
@given(
    st.sampled_from(PROBLEMS),
    st.sampled_from(["scale_out_bandwidth_bytes_per_s", "scale_up_bandwidth_bytes_per_s"]),
)
def test_a_faster_network_is_never_slower(name: str, link: str) -> None:
    faster = with_device(cluster(2), **{link: 2.0})
    assert best_s(name, faster) <= best_s(name, cluster(2)) * SLACK


@few
@given(st.sampled_from(PROBLEMS), st.integers(0, 2))
def test_more_staleness_is_never_slower(name: str, staleness: int) -> None:
    loose = best_s(name, cluster(2), max_staleness=staleness + 1)
    assert loose <= best_s(name, cluster(2), max_staleness=staleness) * SLACK


def without(base: SearchSpace, kind: str, field: str) -> SearchSpace:
    """The space with only the first value of a field."""
    calls = dict(base.calls)
    values = getattr(calls[kind], field)  # type: ignore[index]
    calls[kind] = calls[kind].model_copy(update={field: values[:1]})  # type: ignore[index]
    return base.model_copy(update={"calls": calls})


@few
@given(
    st.sampled_from(PROBLEMS),
    st.sampled_from(["tp", "cp", "offload", "recompute", "micro_batch_sequences"]),
    st.sampled_from(["train", "generate"]),
)
def test_removing_a_choice_is_never_faster(name: str, field: str, kind: str) -> None:
    assert field in CallSpace.model_fields
    fewer = without(space(), kind, field)
    assert best_s(name, cluster(2)) <= best_s(name, cluster(2), fewer) * SLACK


@few
@given(st.sampled_from(PROBLEMS[:1]))
def test_a_launchers_space_is_never_better_than_any_with_its_profiles(name: str) -> None:
    """The unrestricted space under the launcher's conventions and measured overheads."""
    own = space()
    free = space("any").model_copy(
        update={
            "framework": own.framework,
            "engine": own.engine,
            "reference_shares_actor_layout": own.reference_shares_actor_layout,
        }
    )
    assert best_s(name, cluster(2), free) <= best_s(name, cluster(2), own) * SLACK


@pytest.mark.parametrize("name", PROBLEMS[:2])
def test_the_names_and_order_of_node_groups_change_nothing(name: str) -> None:
    mixed = planner.parse_cluster("h100:1x8+a100:1x8")
    first, second = mixed.groups

    def named(group: NodeGroup, label: str) -> NodeGroup:
        return group.model_copy(update={"name": label})

    turned = mixed.model_copy(update={"groups": (named(second, "x"), named(first, "a"))})
    one, other = best_s(name, mixed), best_s(name, turned)
    assert one <= other * SLACK
    assert other <= one * SLACK
