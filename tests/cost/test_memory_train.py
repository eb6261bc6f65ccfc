"""Memory of training and forward calls: hand counts, laws, published measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from training_contexts import (
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_4B,
    QWEN3_30B,
    arrays,
    context,
    fixed,
    framework,
    model,
    training_strategies,
)

from planner.catalog.hardware import load_device
from planner.cost.arrays import CallCosts
from planner.cost.forward import forward_cost
from planner.cost.memory import FITS_SHARE, usable_bytes, verdict
from planner.cost.train import train_cost
from planner.schema import MoESpec, Strategy

GIB = 2**30
LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def one(ctx, **strategy) -> CallCosts:
    return train_cost(ctx, arrays(Strategy(**strategy)))


def bytes_of(costs: CallCosts, *names: str) -> float:
    return float(sum(costs.memory_parts_bytes[name][0] for name in names))


def state_of(costs: CallCosts) -> float:
    return bytes_of(costs, "weights", "gradients", "optimizer")


def test_llama_70b_with_a_distributed_optimizer_holds_6_plus_12_over_d():
    # 80 layers over 4 stages, tp 8, 4 data-parallel ranks. A layer: q and o 8192 x 8192, k and v
    # 8192 x 1024, three matrices 8192 x 28672, two norms. Embedding 128256 x 8192 on the first
    # stage, padded to a multiple of 128 x 8.
    matrices = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    layer = matrices / 8 + 2 * 8192
    embedding = 129024 / 8 * 8192
    costs = one(context(LLAMA_70B, profile="megatron"), tp=8, pp=4, dp=4, zero_stage=1)
    assert state_of(costs) == pytest.approx((20 * layer + embedding) * (6 + 12 / 4), rel=1e-6)


def test_state_without_sharding_and_with_fsdp():
    whole = one(context(profile="megatron"), dp=8, zero_stage=0)
    parameters = 8.030e9
    assert state_of(whole) == pytest.approx(18 * parameters, rel=1e-3)
    assert state_of(one(context(profile="fsdp2"), dp=8, zero_stage=3)) == pytest.approx(
        16 * parameters / 8, rel=1e-3
    )
    deepspeed = [
        state_of(one(context(profile="deepspeed"), dp=8, zero_stage=stage)) for stage in range(4)
    ]
    # arXiv:1910.02054: 16, 4 + 12/8, 2 + 14/8 and 16/8 bytes a parameter.
    expected = [16, 4 + 12 / 8, 2 + 14 / 8, 16 / 8]
    assert np.array(deepspeed) / parameters == pytest.approx(expected, rel=1e-3)


def test_experts_are_sharded_over_their_own_replicas():
    # 48 layers of 128 experts of 3 x 2048 x 768; ep 8 of 32 devices leaves 4 replicas.
    experts = 48 * 128 * 3 * 2048 * 768
    ctx = context(QWEN3_30B, profile="megatron")
    dense = model_without_experts_state(ctx, dp=32)
    costs = one(ctx, dp=32, ep=8, zero_stage=1)
    assert state_of(costs) - dense == pytest.approx(experts / 8 * (6 + 12 / 4), rel=1e-6)


def model_without_experts_state(ctx, dp: int) -> float:
    """State of everything but routed experts: attention, norms, router, both embeddings."""
    layer = 2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128 + 2 * 2048 + 2048 * 128
    parameters = 48 * layer + 2 * 151936 * 2048 + 2048
    return parameters * (6 + 12 / dp)


def test_a_tied_head_on_another_stage_is_a_second_copy():
    tied = context(QWEN3_4B, profile="megatron")
    untied = context(QWEN3_4B.model_copy(update={"tie_embeddings": False}), profile="megatron")
    assert state_of(one(tied, dp=1)) < state_of(one(untied, dp=1))
    split = Strategy(pp=2, dp=1)
    tied_costs = train_cost(tied, arrays(split))
    untied_costs = train_cost(untied, arrays(split))
    assert state_of(tied_costs) == state_of(untied_costs)


def test_activations_of_a_gpt_layer_are_32_of_the_34_sbh_that_include_dropout_masks():
    # arXiv:2205.05198 counts 34 s b h + 5 a s^2 b for GPT; flash attention drops the second term
    # and two bytes of the first are dropout masks, which RL training does not have.
    gpt = model(
        hidden_size=6144,
        num_layers=48,
        num_heads=64,
        num_kv_heads=64,
        head_dim=96,
        ffn_size=24576,
        vocab_size=51200,
        mlp="plain",
    )
    ctx = context(gpt, sequences=4, prompt=fixed(1), response=fixed(2047), profile="megatron")
    costs = one(ctx, packing=False, micro_batch_sequences=4)
    expected = 48 * 32 * 2048 * 4 * 6144
    assert bytes_of(costs, "activations") == pytest.approx(expected)
    # With sequence parallelism everything is divided by tp.
    parallel = one(ctx, tp=8, sequence_parallel=True, packing=False, micro_batch_sequences=4)
    assert bytes_of(parallel, "activations") == pytest.approx(expected / 8)
    without = one(ctx, tp=8, packing=False, micro_batch_sequences=4)
    assert bytes_of(without, "activations") == pytest.approx(48 * 2048 * 4 * 6144 * (8 + 24 / 8))


def test_full_recomputation_keeps_layer_inputs_and_one_live_layer():
    ctx = context(LLAMA_8B, role="critic", prompt=fixed(1), response=fixed(8191), sequences=8)
    costs = one(ctx, packing=False, recompute="full")
    assert bytes_of(costs, "activations") == 32 * 2 * 4096 * 8192
    layer = 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336) * 8192
    assert bytes_of(costs, "live_layer") == pytest.approx(layer)
    none = one(ctx, packing=False, recompute="none")
    assert bytes_of(none, "activations") == pytest.approx(32 * layer)


def test_microbatches_in_flight_on_the_first_stage():
    ctx = context(LLAMA_8B, role="critic", sequences=64, prompt=fixed(1), response=fixed(4095))

    def activations(**strategy) -> float:
        return bytes_of(one(ctx, tp=8, packing=False, **strategy), "activations")

    single = activations(dp=1)
    # Four microbatches of a quarter of the layers; interleaving keeps 1 + (p - 1) / (p v) of it.
    assert activations(pp=4, dp=1) == pytest.approx(single)
    assert activations(pp=4, vpp=2, dp=1) == pytest.approx(single * (1 + 3 / 8))
    # Two microbatches cannot fill four places.
    assert activations(pp=4, dp=32) == pytest.approx(single / 2)


def test_logits_by_loss_and_chunk():
    ctx = context(LLAMA_8B, prompt=fixed(1), response=fixed(4095), sequences=8)
    per_logit = ctx.framework.value("logits_train_bytes")
    costs = one(ctx, packing=False)
    assert bytes_of(costs, "logits") == pytest.approx(4096 * 128256 * per_logit)
    chunked = context(
        LLAMA_8B,
        prompt=fixed(1),
        response=fixed(4095),
        sequences=8,
        profile=framework("nemo-rl", logits_chunk_tokens=1024),
    )
    assert bytes_of(one(chunked, packing=False), "logits") == pytest.approx(
        bytes_of(costs, "logits") / 4
    )


def test_a_published_out_of_memory_report_of_full_logits():
    # 108 thousand tokens of a 151,936-word vocabulary in fp32 are 61.34 GiB.
    ctx = context(
        QWEN3_4B,
        kind="forward",
        role="reference",
        trained=False,
        prompt=fixed(1),
        response=fixed(108_373),
        profile=framework("nemo-rl", logits_forward_bytes=4.0),
        sequences=1,
    )
    costs = forward_cost(ctx, arrays(Strategy(packing=False)))
    assert bytes_of(costs, "logits") / GIB == pytest.approx(61.34, rel=1e-3)


SHARDED = ("tp", "dp", "pp", "ep")


@LAWS
@given(st.data(), st.sampled_from(SHARDED), st.booleans())
def test_memory_never_grows_with_sharding(data, degree, experts):
    spec = QWEN3_30B if experts else LLAMA_70B
    assume(experts or degree != "ep")
    base = data.draw(training_strategies(experts=experts))
    # Stages that divide the layers evenly, so that more of them hold less each.
    changes: dict[str, int | bool] = {degree: getattr(base, degree) * 2, "vpp": 1}
    before = base.model_copy(update={"vpp": 1, "etp": 1, "sequence_parallel": True})
    after = before.model_copy(update=changes)
    assume(after.ep <= before.tp * before.cp * before.dp)
    # Even routing: spreading experts costs memory where some of them get more than their share.
    even = framework("nemo-rl", moe_imbalance=1.0)
    ctx = context(spec, sequences=4096, profile=even)
    one_step, two_step = train_cost(ctx, arrays(before)), train_cost(ctx, arrays(after))
    if degree == "dp" and before.zero_stage == 0:
        assert state_of(two_step) == state_of(one_step)
    else:
        assert state_of(two_step) <= state_of(one_step) * (1 + 1e-9)
    if degree in ("tp", "ep"):
        assert two_step.peak_bytes[0] <= one_step.peak_bytes[0] * (1 + 1e-9)


def test_offloading_frees_the_device_and_fills_the_host():
    ctx = context(LLAMA_8B)
    none, optimizer, everything = (
        one(ctx, dp=8, zero_stage=1, offload=mode) for mode in ("none", "optimizer", "all")
    )
    assert none.peak_bytes[0] == optimizer.peak_bytes[0] == everything.peak_bytes[0]
    assert none.resident_bytes[0] == pytest.approx(state_of(none))
    assert optimizer.resident_bytes[0] == pytest.approx(bytes_of(none, "weights", "gradients"))
    assert everything.resident_bytes[0] == 0.0
    assert none.host_bytes_per_device[0] == 0.0
    assert everything.host_bytes_per_device[0] > optimizer.host_bytes_per_device[0] > 0.0
    on_host = one(ctx, dp=8, zero_stage=1, optimizer_on_cpu=True)
    assert bytes_of(on_host, "optimizer") == 0.0
    assert on_host.host_bytes_per_device[0] > 12 * 8.03e9 / 8


def test_zero_3_gathers_a_few_layers():
    layer = 218e6
    ends = 2 * 128256 * 4096
    whole = 2 * (3 * layer + ends * 3)
    # Shards in fp32 are no bf16 weights: even a single rank makes whole copies.
    for ranks in (1, 64):
        costs = one(context(profile="fsdp2"), dp=ranks, zero_stage=3)
        assert bytes_of(costs, "gathered") == pytest.approx(whole, rel=0.01)
    # A bf16 share is a part of the whole already.
    half = framework("fsdp2", weight_bytes_per_parameter=2.0)
    alone = one(context(profile=half), dp=1, zero_stage=3)
    assert bytes_of(alone, "gathered") == 0.0
    many = one(context(profile=half), dp=64, zero_stage=3)
    assert bytes_of(many, "gathered") == pytest.approx(whole * 63 / 64, rel=0.01)


def test_verdict_bands():
    device, profile = load_device("h100-80-sxm"), framework("nemo-rl")
    usable = usable_bytes(device, profile)
    assert 0.80 * device.memory_bytes < usable < 0.95 * device.memory_bytes
    assert verdict(0.5 * usable, usable) == "fits"
    assert verdict(FITS_SHARE * usable, usable) == "fits"
    assert verdict(0.95 * usable, usable) == "tight"
    assert verdict(1.01 * usable, usable) == "does not fit"


@pytest.mark.parametrize(
    ("tokens", "loss", "measured_gib"),
    [(16384, "rl", 17.08), (65536, "rl", 36.1), (16384, "sft", 54.6)],
)
def test_fsdp2_peaks_of_prime_rl(tokens, loss, measured_gib):
    # PrimeIntellect-ai/prime-rl benchmarks/baselines: Qwen3-4B, full fine-tuning, 8 H100, one
    # packed sequence a microbatch; the RL loss is chunked, the SFT loss is not.
    chunk = 1024 if loss == "rl" else 0
    ctx = context(
        QWEN3_4B,
        sequences=16,
        prompt=fixed(1),
        response=fixed(tokens - 1),
        cluster="h100:1x8",
        profile=framework("fsdp2", logits_chunk_tokens=chunk),
    )
    costs = one(ctx, dp=8, zero_stage=3, recompute="full", packing=False)
    assert costs.peak_bytes[0] / GIB == pytest.approx(measured_gib, rel=0.05)


def test_megatron_peak_of_a_15b_model():
    # NVIDIA/Megatron-LM tests/functional_tests: gpt3_15b_8t_release_sm_gb200, tp 4, pp 2
    # interleaved, distributed optimizer over 8 ranks (its 13.7 GiB between steps imply them),
    # fused cross-entropy. 39.7 GiB on the last stage; the first one holds more microbatches.
    nemotron = model(
        hidden_size=6144,
        num_layers=32,
        num_heads=48,
        ffn_size=24576,
        vocab_size=256000,
        mlp="plain",
    )
    ctx = context(
        nemotron,
        sequences=1152,
        prompt=fixed(1),
        response=fixed(4095),
        cluster="gb200-nvl72:16x4",
        profile=framework("megatron", logits_train_bytes=4.3),
    )
    costs = one(
        ctx,
        tp=4,
        pp=2,
        vpp=2,
        dp=8,
        zero_stage=1,
        sequence_parallel=True,
        micro_batch_sequences=4,
        packing=False,
    )
    assert state_of(costs) / GIB == pytest.approx(13.7, rel=0.05)
    assert costs.peak_bytes[0] / GIB == pytest.approx(39.7, rel=0.15)


def test_published_recipes_fit_their_devices():
    # NeMo RL performance recipes: Qwen3-30B-A3B on 4 x 8 H100 with ep 8 (v0.6) and Llama-3.1-8B
    # on one node of 8 H100 without any model parallelism (v0.3, packed 4,096 tokens).
    usable = usable_bytes(load_device("h100-80-sxm"), framework("nemo-rl"))
    moe = one(
        context(QWEN3_30B, cluster="h100:4x8", sequences=2048),
        dp=32,
        ep=8,
        zero_stage=1,
        micro_batch_sequences=1,
    )
    dense = one(
        context(LLAMA_8B, cluster="h100:1x8", sequences=2048, optimizer_steps=4),
        dp=8,
        zero_stage=1,
    )
    assert verdict(float(moe.peak_bytes[0]), usable) != "does not fit"
    assert verdict(float(dense.peak_bytes[0]), usable) != "does not fit"


def test_imbalanced_routing_needs_more_memory():
    spec = QWEN3_30B.model_copy(
        update={"moe": MoESpec(num_experts=128, top_k=8, expert_ffn_size=768)}
    )
    even = one(context(spec, profile=framework("nemo-rl", moe_imbalance=1.0)), dp=32, ep=8)
    uneven = one(context(spec, profile=framework("nemo-rl", moe_imbalance=1.5)), dp=32, ep=8)
    assert bytes_of(uneven, "activations") > 1.1 * bytes_of(even, "activations")


def test_routing_cannot_be_uneven_over_one_rank():
    even = one(context(QWEN3_30B, profile=framework("nemo-rl", moe_imbalance=1.0)), dp=32)
    uneven = one(context(QWEN3_30B, profile=framework("nemo-rl", moe_imbalance=1.5)), dp=32)
    assert bytes_of(uneven, "activations") == bytes_of(even, "activations")


def test_zero_shards_inside_groups_of_a_given_size():
    ctx = context(profile=framework("fsdp2", zero_shard_ranks=8))
    assert state_of(one(ctx, dp=64, zero_stage=3)) == state_of(one(ctx, dp=8, zero_stage=3))
    assert state_of(one(ctx, dp=4, zero_stage=3)) > state_of(one(ctx, dp=8, zero_stage=3))


def test_adapters_need_gradients_and_moments_of_their_own_alone():
    ctx = context(LLAMA_8B, profile="fsdp2")
    adapted = replace(ctx, workload=ctx.workload.model_copy(update={"lora_rank": 16}))
    costs = one(adapted, dp=1, zero_stage=3)
    # q, k, v, o and the three matrices of a layer: rank x (inputs + outputs) each.
    layer = 16 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * (4096 + 14336))
    assert bytes_of(costs, "gradients") == pytest.approx(4 * 32 * layer)
    assert bytes_of(costs, "optimizer") == pytest.approx(8 * 32 * layer)
    base = ctx.framework.value("frozen_base_bytes_per_parameter") * 8.030e9
    assert bytes_of(costs, "weights") == pytest.approx(base + 4 * 32 * layer, rel=1e-3)
    # Split like the matrices they stand beside.
    split = one(adapted, tp=4, dp=1, zero_stage=1)
    assert bytes_of(split, "gradients") == pytest.approx(4 * 32 * layer / 4)


def test_experts_carry_adapters_too():
    ctx = context(QWEN3_30B, profile="fsdp2")
    adapted = replace(ctx, workload=ctx.workload.model_copy(update={"lora_rank": 16}))
    expert = 16 * 3 * (2048 + 768)
    attention = 16 * (4 * 2048 + 2 * 4096 + 2 * 512)
    expected = 4 * 48 * (128 * expert + attention)
    assert bytes_of(one(adapted, dp=1), "gradients") == pytest.approx(expected)
    spread = 4 * 48 * (128 * expert / 8 + attention)
    assert bytes_of(one(adapted, dp=8, ep=8), "gradients") == pytest.approx(spread)


def test_plain_attention_keeps_scores_unless_the_core_is_recomputed():
    profile = framework("megatron", attention_unfused=1.0, unfused_score_bytes=5.0)
    lengths = {"prompt": fixed(1), "response": fixed(4095), "sequences": 8}
    plain, flash = context(profile=profile, **lengths), context(profile="megatron", **lengths)

    def kept(ctx, recompute: str) -> float:
        return bytes_of(one(ctx, packing=False, recompute=recompute), "activations")

    # 5 a s^2 bytes in each of 32 layers (arXiv:2205.05198).
    scores = 32 * 5 * 32 * 4096**2
    assert kept(plain, "none") - kept(flash, "none") == pytest.approx(scores)
    assert kept(plain, "selective") == kept(flash, "none")


def test_an_all_gather_of_tokens_keeps_those_of_every_expert_rank():
    gathers = framework("megatron", dispatch_gathers_tokens=1.0)
    lengths = {"prompt": fixed(1), "response": fixed(4095), "sequences": 64}
    exchange = one(context(QWEN3_30B, profile="megatron", **lengths), dp=8, ep=8, packing=False)
    gather = one(context(QWEN3_30B, profile=gathers, **lengths), dp=8, ep=8, packing=False)
    more = bytes_of(gather, "activations") - bytes_of(exchange, "activations")
    assert more == pytest.approx(48 * 8 * 4096 * 2048 * 2)


def test_a_whole_pipeline_stage_counts_weights_and_gradients_once():
    whole = framework("fsdp2", whole_stage_bytes=6.0)
    costs = one(context(LLAMA_70B, profile=whole), tp=8, pp=4, dp=4, zero_stage=3)
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    stage = (20 * layer + 129024 * 8192) / 8
    # Beside them the fp32 gradients of three of its 20 layers wait for their reduction.
    expected = 6 * stage + 4 * stage * 3 / 20
    assert bytes_of(costs, "gathered") == pytest.approx(expected, rel=1e-3)
