"""What layouts that differ from call to call are worth: PPO of four 70B models on 128 H100.

    python benchmarks/layouts.py

Synchronous plans, all proven within 0.5 % in one cost model: the space `any`; the same without
copies and fusions (one layout for a trainer and its passes); one layout (tp, pp) for everything on
all devices, the best of six; and every model and the engine on nodes of its own. After the
comparison of ReaL (arXiv:2406.14088). Lengths are fixed; rows with 8k hold as many tokens as the
first, or as many sequences.
"""

from __future__ import annotations

import time

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.schema import LengthDistribution, PlanSet, SearchSpace, Workload

MODEL = "meta-llama/Llama-3.1-70B"
CASES = ((1024, 1024, 512), (7168, 1024, 128), (1024, 7168, 128), (1024, 7168, 512))
"""Tokens of a prompt, of a response, and sequences in a step."""
ONE_LAYOUT = ((8, 1), (8, 2), (8, 4), (4, 4), (4, 2), (2, 4))


def workload(prompt_tokens: int, response_tokens: int, sequences: int) -> Workload:
    """The PPO step with fixed lengths."""
    read = problem_from(
        None,
        algorithm="ppo",
        models=dict.fromkeys(("actor", "critic", "reference", "reward"), MODEL),
        cluster="h100:16x8",
        prompts=sequences,
        samples=1,
        response_mean=float(response_tokens),
        response_max=response_tokens,
        max_staleness=0,
    )
    lengths = {
        name: LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)
        for name, tokens in (
            ("prompt_length", prompt_tokens),
            ("response_length", response_tokens),
        )
    }
    return read.workload.model_copy(update=lengths)


def without_variants(space: SearchSpace) -> SearchSpace:
    """One layout for a trainer and its forward passes, no fusions."""
    return space.model_copy(update={"reallocation": False, "fusions": ()})


def one_layout(space: SearchSpace, tp: int, pp: int) -> SearchSpace:
    """All calls of all models on all devices with the same degrees."""
    degrees = {"tp": (tp,), "pp": (pp,)}
    trainer = degrees | {"cp": (1,), "zero_stage": (1,), "vpp": (1,), "uneven_stages": False}
    calls = {
        kind: values.model_copy(update=degrees if kind == "generate" else trainer)
        for kind, values in space.calls.items()
    }
    changes = {"calls": calls, "placements": ("colocated",)}
    return without_variants(space).model_copy(update=changes)


def by_nodes(space: SearchSpace) -> SearchSpace:
    """Every model, and the engine, on nodes of its own."""
    own = {"colocated": ("engine", "reference", "reward", "critic")}
    changes = {"placements": ("colocated",), "own_devices": own, "sub_node_meshes": False}
    return without_variants(space).model_copy(update=changes)


def best(given: Workload, space: SearchSpace) -> PlanSet:
    """The proven best plan."""
    return planner.plan(given, planner.parse_cluster("h100:16x8"), space=space, top=1)


def main() -> None:
    """Print a line a case."""
    space = load_space("relayout")
    print(f"{'prompt':>6} {'resp.':>6} {'seqs':>5} {'best s':>8} {'CPU s':>6} {'gap %':>6}", end="")
    print(f" {'one copy':>8} {'one layout':>10} {'by nodes':>8}  fusions")
    for case in CASES:
        given = workload(*case)
        started = time.process_time()
        found = best(given, space)
        spent = time.process_time() - started
        ours = found.plans[0].step_time_s
        single = min(
            best(given, one_layout(space, *degrees)).plans[0].step_time_s for degrees in ONE_LAYOUT
        )
        copies = best(given, without_variants(space)).plans[0].step_time_s
        split = best(given, by_nodes(space)).plans[0].step_time_s
        prompt, response, sequences = case
        print(
            f"{prompt:6d} {response:6d} {sequences:5d} {ours:8.1f} {spent:6.1f} "
            f"{100 * found.search.gap:6.2f} {copies / ours:8.3f} {single / ours:10.2f} "
            f"{split / ours:8.2f}  {', '.join(found.plans[0].assignment.fusions) or '-'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
