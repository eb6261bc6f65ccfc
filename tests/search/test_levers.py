"""What is named as a remedy, on the same devices, makes a plan possible."""

import re

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from


def problem(actor: str, cluster: str, mean: float, most: int) -> Problem:
    return problem_from(
        None,
        models={"actor": actor},
        algorithm="grpo",
        cluster=cluster,
        prompts=64,
        samples=8,
        response_mean=mean,
        response_max=most,
    )


def message(one: Problem, space: object) -> str:
    with pytest.raises(planner.InfeasibleError) as raised:
        planner.plan(one.workload, one.cluster, space=space)  # type: ignore[arg-type]
    return str(raised.value)


def test_adapters_that_would_fit_are_named() -> None:
    one = problem("meta-llama/Llama-3.1-70B", "h100:3x8", 600.0, 1024)
    found = re.search(r"with LoRA of rank (\d+)", message(one, "verl-fsdp"))
    assert found is not None
    workload = one.workload.model_copy(update={"lora_rank": int(found[1])})
    assert planner.plan(workload, one.cluster, space="verl-fsdp", top=1).plans


def test_a_lower_limit_that_would_fit_is_named() -> None:
    one = problem("Qwen/Qwen2.5-7B", "h100:1x1", 2000.0, 100_000)
    text = message(one, "nemo-rl-megatron")
    found = re.search(r"with responses of at most ([\d,]+) tokens \(now 100,000\)", text)
    assert found is not None
    cap = int(found[1].replace(",", ""))
    for limit, fits in ((cap, True), (2 * cap, False)):
        lengths = one.workload.response_length.model_copy(update={"max_tokens": limit})
        workload = one.workload.model_copy(update={"response_length": lengths})
        try:
            planner.plan(workload, one.cluster, space="nemo-rl-megatron", top=1)
            assert fits
        except planner.InfeasibleError:
            assert not fits


def test_offload_is_named_where_the_space_leaves_it_out() -> None:
    base = load_space("verl-fsdp")
    calls = {
        kind: each.model_copy(update={"offload": ("none",), "optimizer_on_cpu": (False,)})
        for kind, each in base.calls.items()
    }
    bare = base.model_copy(update={"calls": calls})
    # The largest model that fits only when it leaves the device while others run.
    one = problem("Qwen/Qwen2.5-14B", "h100:1x4", 600.0, 2048)
    text = message(one, bare)
    assert "with `offload: all`" in text
    wide = bare.model_copy(
        update={
            "calls": {
                kind: each
                if kind == "generate"
                else each.model_copy(update={"offload": ("none", "all")})
                for kind, each in calls.items()
            }
        }
    )
    assert planner.plan(one.workload, one.cluster, space=wide, top=1).plans
