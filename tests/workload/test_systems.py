"""What published systems ask of a planner, each as a law: DiRL, BFS-Prover-V2, inverse RL,
Ring-lite, DeepRec, SWEET-RL, ArCHer, DeepSeek-R1. Plans are priced as given, not searched."""

from __future__ import annotations

from typing import Any

import pytest
from algorithm_workloads import TURNS, workload_for
from priced import price

from planner.catalog.hardware import parse_cluster
from planner.catalog.models import load_model
from planner.catalog.workloads import problem_from
from planner.cost.parameters import count_parameters
from planner.schema import Prediction, Strategy, Workload
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order
from planner.workload.sampling import unused_share
from planner.workload.turns import later_prefill


def preset(name: str, **changes: Any) -> Workload:
    workload = problem_from(preset=name).workload
    return Workload.model_validate({**workload.model_dump(), **changes})


ENGINE = Strategy(tp=1, dp=8, max_running_sequences=256, memory_fraction=0.85)
TRAINER = Strategy(dp=8, zero_stage=3, recompute="full", offload="all")


# DiRL ------------------------------------------------------------------------------------------


def test_dirl_8b_fits_on_eight_h100_with_sharded_weights_and_recomputation() -> None:
    found = price(preset("dipo"), "h100:1x8", {"generate": (0, 1, ENGINE), "": (0, 1, TRAINER)})
    assert found.fits
    assert found.calls["generate"].time_parts_s["decode_weights"] > 0


def test_block_diffusion_halves_the_depth_of_a_rollout_and_doubles_its_training() -> None:
    blocks = preset("dipo")
    plain = blocks.model_copy(update={"algorithm": "grpo", "block_diffusion": None})
    layouts = {"generate": (0, 1, ENGINE), "": (0, 1, TRAINER)}
    one, other = (price(w, "h100:1x8", layouts).calls for w in (plain, blocks))
    assert other["generate"].depth / one["generate"].depth == pytest.approx(0.5, abs=0.01)
    ratio = other["actor_train"].work_flop / one["actor_train"].work_flop
    assert ratio == pytest.approx(2.0)


# BFS-Prover-V2 ---------------------------------------------------------------------------------

SEARCH = {
    "generate": (0, 2, Strategy(dp=16)),
    "": (2, 2, Strategy(dp=16, zero_stage=3, recompute="full")),
}
CHECKED = 2048 * 8


def checker(latency_s: float, workers: int = 2048) -> Workload:
    return preset("expert-iteration", environment={"latency_s": latency_s, "workers": workers})


def busy_s(found: Prediction) -> float:
    """The step without its overheads."""
    return found.step_time_s - sum(found.overheads_s.values())


def test_a_slow_proof_checker_becomes_the_bottleneck_and_asks_for_workers() -> None:
    quick, slow = (price(checker(s), "h100:4x8", SEARCH) for s in (5.0, 50.0))
    assert quick.fits
    decode = quick.calls["generate"]
    train_s = quick.calls["perplexity"].time_s + quick.calls["actor_train"].time_s
    assert busy_s(quick) < 1.2 * max(decode.time_s, train_s)
    verify = slow.calls["verify"]
    assert verify.bottleneck == "environment"
    assert max(slow.calls, key=lambda name: slow.calls[name].time_s) == "verify"
    assert slow.step_time_s >= CHECKED * 50.0 / 2048
    # Throughput x latency; with that many workers nothing is left but the last check.
    needed = verify.workers_needed
    assert needed == pytest.approx(CHECKED * 50.0 / decode.time_s)
    ample = price(checker(50.0, round(1.01 * needed)), "h100:4x8", SEARCH)
    assert busy_s(ample) <= 1.01 * max(train_s, decode.time_s + 50.0)


def test_search_and_training_on_earlier_proofs_overlap() -> None:
    """Off-policy data have no barrier: the step is the longer of the two, not their sum."""
    found = price(checker(0.05), "h100:4x8", SEARCH)
    search = found.calls["generate"].time_s
    train = found.calls["perplexity"].time_s + found.calls["actor_train"].time_s
    assert busy_s(found) == pytest.approx(max(search, train), rel=0.05)
    waiting = checker(0.05).model_copy(update={"replay_sequences": {}})
    barrier = price(waiting, "h100:4x8", SEARCH)
    each = [barrier.calls[name].time_s for name in ("generate", "perplexity", "actor_train")]
    assert busy_s(barrier) == pytest.approx(sum(each), rel=0.05)


def proving(subgoals: int, in_a_row: float) -> Workload:
    """As many subgoals in all, some of which must follow one another."""
    rows = round(subgoals / in_a_row)
    length = {"kind": "fixed", "mean_tokens": 150.0 * in_a_row, "max_tokens": int(150 * in_a_row)}
    return preset(
        "planned-proving",
        prompts_per_step=rows,
        response_length=length,
        turns={"mean": in_a_row, "observation_tokens": 100.0},
    )


def proving_s(workload: Workload, prover_nodes: int) -> float:
    prover = Strategy(tp=8, dp=prover_nodes, max_running_sequences=256)
    planner_pool = Strategy(tp=8, dp=1, max_running_sequences=256)
    layouts = {
        "env_llm": (prover_nodes, 1, planner_pool),
        "generate": (0, prover_nodes, prover),
    }
    found = price(workload, f"h100:{prover_nodes + 1}x8", layouts)
    return found.calls["generate"].time_s


def test_twice_the_provers_at_most_halve_the_time() -> None:
    """And save less where subgoals follow one another: then few are in work at a time."""
    gains = []
    for in_a_row in (8.0, 32.0, 64.0):
        workload = proving(1024, in_a_row)
        gains.append(proving_s(workload, 1) / proving_s(workload, 2))
    # Whole decode steps round by a part in a thousand.
    assert all(1.0 <= gain <= 2.01 for gain in gains)
    assert gains[0] > gains[1] > gains[2]
    assert gains[2] < 1.6
    # What the cache of proofs holds is not tried again.
    assert proving_s(proving(512, 2.0), 1) < proving_s(proving(1024, 2.0), 1)


def test_the_planner_has_devices_beside_the_provers() -> None:
    from planner import plan

    problem = problem_from(preset="planned-proving", cluster="h100:2x8")
    best = plan(problem.workload, problem.cluster, top=1).plans[0]
    provers, planner = best.calls["generate"].mesh, best.calls["simulate_environment"].mesh
    assert provers is not None
    assert planner is not None
    assert not provers.overlaps(planner)


# Inverse RL ------------------------------------------------------------------------------------


def test_a_trained_reward_model_has_sixteen_bytes_a_parameter_and_a_frozen_one_two() -> None:
    settings = {"roles": ("actor", "critic", "reward"), "kl_weight": 0.0}
    frozen, trained = workload_for("ppo", **settings), workload_for("irl", **settings)
    one = Strategy(dp=1)
    layouts = {"generate": (0, 1, Strategy(tp=1, memory_fraction=0.4)), "": (0, 1, one)}
    parameters = count_parameters(frozen.models["reward"], "scalar").total

    def state(workload: Workload) -> float:
        memory = price(workload, "h100:1x1", layouts).calls["rewards"].memory_bytes
        parts = ("weights", "gradients", "optimizer")
        return sum(memory.get(name, 0) for name in parts) / parameters

    assert state(frozen) == pytest.approx(2.0, rel=0.01)
    assert 16.0 * 0.99 <= state(trained) <= 18.0 * 1.01
    graph = build_graph(trained)
    assert "reward_train" in graph
    assert "reward_train" not in build_graph(frozen)
    import networkx as nx

    assert not nx.has_path(graph, "reward_train", "actor_train")
    assert not nx.has_path(graph, "actor_train", "reward_train")


def test_a_reward_model_trains_on_pairs_without_generating() -> None:
    workload = preset("reward-model")
    assert {c.kind for c in calls_in_order(build_graph(workload))} == {"train"}
    model = workload.models["reward"]
    layout = Strategy(dp=8, zero_stage=3, recompute="full")
    call = price(workload, "a100:1x8", {"": (0, 1, layout)}).calls["reward_train"]
    tokens = 256 * 2 * workload.mean_sequence_tokens
    parameters = count_parameters(model, "scalar").active_without_embeddings
    # 6 N a token, 8 N with full recomputation; attention comes on top.
    assert call.work_flop == pytest.approx(8 * parameters * tokens, rel=0.1)
    assert call.work_flop >= 8 * parameters * tokens


# Ring-lite -------------------------------------------------------------------------------------


def test_ring_lite_has_a_plan_on_256_h800_and_reports_its_waste() -> None:
    workload = preset("ring-lite")
    counts = count_parameters(workload.models["actor"])
    assert counts.total == pytest.approx(16.8e9, rel=0.005)
    assert counts.active == pytest.approx(2.75e9, rel=0.005)
    engine = Strategy(dp=256, max_running_sequences=256, memory_fraction=0.8)
    trainer = Strategy(dp=256, ep=8, zero_stage=1, recompute="full", offload="all")
    found = price(workload, "h800:32x8", {"generate": (0, 32, engine), "": (0, 32, trainer)})
    assert found.fits
    assert 0.0 < unused_share(workload) < 0.1


# DeepRec ---------------------------------------------------------------------------------------


def deeprec(latency_s: float, workers: int = 100_000) -> Workload:
    return preset(
        "deeprec",
        turns={
            "mean": 4.0,
            "observation_tokens": 200.0,
            "environment": {"latency_s": latency_s, "workers": workers},
        },
    )


def test_a_recommender_quicker_than_a_turn_changes_little_and_a_slow_one_fills_with_work() -> None:
    layouts = {"generate": (0, 1, ENGINE), "": (0, 1, TRAINER)}
    instant, quick, slow = (
        price(deeprec(s), "h100:1x8", layouts).calls["generate"] for s in (0.0, 0.02, 5.0)
    )
    assert quick.time_s < 1.02 * instant.time_s
    assert slow.time_s > instant.time_s
    # Requests in flight grow with the latency, less what the longer rollout spreads them over.
    assert instant.workers_needed is None
    ratio = slow.workers_needed / quick.workers_needed
    assert ratio == pytest.approx(5.0 / 0.02 * quick.time_s / slow.time_s)


def test_prefill_of_dialogues_grows_with_turns_or_with_their_square() -> None:
    def prefilled(turns: int, hit: float) -> float:
        base = preset("deeprec")
        length = {"kind": "fixed", "mean_tokens": 200.0 * turns, "max_tokens": 200 * turns}
        changed = {
            "response_length": length,
            "turns": {"mean": float(turns), "observation_tokens": 200.0, "prefix_cache_hit": hit},
        }
        return later_prefill(Workload.model_validate({**base.model_dump(), **changed})).tokens

    assert prefilled(21, 1.0) / prefilled(11, 1.0) == pytest.approx(2.0)
    assert prefilled(41, 0.0) / prefilled(21, 0.0) == pytest.approx(4.0, rel=0.1)


# SWEET-RL --------------------------------------------------------------------------------------

SWEET = {
    "env_llm": (1, 1, Strategy(tp=8, dp=1, max_running_sequences=32, memory_fraction=0.9)),
    "generate": (0, 1, ENGINE),
    "sample_candidates": (0, 1, ENGINE),
    "": (0, 1, Strategy(dp=8, zero_stage=3, recompute="full", offload="all")),
}


def test_sweet_rl_runs_in_phases_on_the_same_devices() -> None:
    found = price(preset("sweet-rl"), "h100:2x8", SWEET)
    assert found.fits
    order = ["generate", "simulate_environment", "critic_train", "sample_candidates", "actor_train"]
    starts = [found.calls[name].start_s for name in order]
    assert starts == sorted(starts)
    assert all(found.calls[name].mesh == found.calls["generate"].mesh for name in order[2:])
    weights = found.calls["simulate_environment"].memory_bytes["engine_weights"] * 8
    assert weights >= 141e9
    critic = found.calls["critic_train"].memory_bytes
    parameters = count_parameters(load_model("meta-llama/Llama-3.1-8B"), "scalar").total
    state = critic["weights"] + critic["gradients"] + critic["optimizer"]
    assert 16 * 0.99 <= state * 8 / parameters <= 18 * 1.05


def test_twice_the_turns_of_a_dialogue_double_its_depth() -> None:
    def depths(turns: float) -> list[int]:
        base = preset("sweet-rl")
        length = {"kind": "fixed", "mean_tokens": 150.0 * turns, "max_tokens": int(150 * turns)}
        changed = {
            "response_length": length,
            "turns": {"mean": turns, "observation_tokens": 80.0},
            "optimizer_steps": 1,
        }
        workload = Workload.model_validate({**base.model_dump(), **changed})
        found = price(workload, "h100:2x8", SWEET).calls
        return [found[name].depth for name in ("generate", "simulate_environment")]

    five, ten = depths(6.0), depths(11.0)
    assert ten[0] / five[0] == pytest.approx(11 / 6, rel=0.01)
    assert ten[1] / five[1] == pytest.approx(2.0, rel=0.01)


# ArCHer ----------------------------------------------------------------------------------------


def test_archer_hides_its_rollouts_behind_the_critic() -> None:
    workload = preset("archer")
    one = Strategy(dp=1, recompute="none")
    engine = Strategy(tp=1, memory_fraction=0.4, max_running_sequences=128)
    found = price(
        workload,
        "a100:2x1",
        {"generate": (0, 1, engine), "": (1, 1, one)},
    )
    calls = found.calls
    assert calls["critic_train"].work_flop > 10 * calls["actor_train"].work_flop
    ratio = 12_800 / 768
    assert ratio == pytest.approx(50 / 3)
    training = sum(
        calls[name].time_s for name in ("target_values", "critic_train", "values", "actor_train")
    )
    assert found.step_time_s == pytest.approx(
        max(training, calls["generate"].time_s) + sum(found.overheads_s.values()), rel=0.05
    )
    # The target network is a copy of its own.
    held = calls["target_values"].memory_bytes["weights"]
    assert held == pytest.approx(
        2 * count_parameters(workload.models["critic"], "scalar").total, rel=0.01
    )


def test_more_critic_steps_cost_more_and_none_cost_nothing() -> None:
    layouts = {"generate": (0, 1, ENGINE), "": (0, 1, TRAINER)}

    def seconds(steps: int) -> float:
        workload = workload_for(
            "archer",
            turns=TURNS,
            critic_optimizer_steps=steps,
            replay_sequences={"critic": 256 * steps, "actor": 768},
        )
        return price(workload, "h100:1x8", layouts).calls["critic_train"].time_s

    times = [seconds(steps) for steps in (5, 10, 50)]
    assert times == sorted(times)
    assert times[2] / times[0] == pytest.approx(10.0, rel=0.15)
    plain = workload_for("archer", roles=("actor",), replay_sequences={}, turns=TURNS)
    plain = plain.model_copy(update={"critic_optimizer_steps": None})
    assert set(build_graph(plain)) == {"generate", "verify", "actor_train"}


# DeepSeek-R1, DAPO -----------------------------------------------------------------------------

R1 = {
    "generate": (0, 64, Strategy(tp=32, ep=32, dp=16, memory_fraction=0.85)),
    "": (
        0,
        64,
        Strategy(
            pp=16,
            ep=32,
            dp=32,
            first_stage_layers=3,
            last_stage_layers=2,
            recompute="full",
            offload="all",
            zero_stage=1,
        ),
    ),
}


def test_deepseek_r1_zero_spends_most_of_its_step_generating() -> None:
    found = price(preset("deepseek-r1-zero"), "h800:64x8", R1)
    assert found.fits
    assert found.calls["generate"].time_s > 0.6 * found.step_time_s


@pytest.mark.slow
def test_deepseek_r1_zero_takes_about_the_known_gpu_hours() -> None:
    """512 H800 for 198 hours: 10,400 updates of 512 responses, 16 to a rollout of 8,192."""
    from planner import plan

    problem = problem_from(preset="deepseek-r1-zero")
    best = plan(problem.workload, problem.cluster, top=1).plans[0]
    hours = 10_400 / 16 * best.step_time_s * 512 / 3600
    assert 512 * 198 / 2 < hours < 512 * 198 * 2


def test_dapo_generates_long_for_the_groups_that_it_keeps() -> None:
    early, late = preset("dapo-32b"), preset("dapo-32b-late")
    layouts = {
        "generate": (0, 16, Strategy(tp=4, dp=32, max_running_sequences=256)),
        "": (0, 16, Strategy(cp=8, dp=16, zero_stage=3, recompute="full", offload="all")),
    }
    first, last = (price(w, "h800:16x8", layouts) for w in (early, late))
    share = [each.calls["generate"].time_s / each.step_time_s for each in (first, last)]
    assert share[1] > share[0] > 0.5
    assert first.calls["generate"].work_flop < last.calls["generate"].work_flop


@pytest.mark.parametrize(("space", "cluster"), [("any", "h100:1x2"), ("verl-fsdp", "h100:2x2")])
def test_a_model_that_plays_the_user_is_served_beside_the_policy(space: str, cluster: str) -> None:
    from planner import plan

    workload = workload_for("agentic", roles=("actor", "env_llm"), max_staleness=0)
    best = plan(workload, parse_cluster(cluster), space=space, top=1).plans[0]
    policy, user = best.calls["generate"].mesh, best.calls["simulate_environment"].mesh
    assert policy is not None
    assert user is not None
    assert not policy.overlaps(user)
