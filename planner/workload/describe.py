"""What a workload's special fields amount to, in sentences that are printed with a plan."""

from __future__ import annotations

import math

from planner.schema import Call, Workload
from planner.workload.decoding import decode_mode
from planner.workload.lengths import expected_maximum
from planner.workload.partial import period_tokens
from planner.workload.sampling import expected_rounds, generated_sequences, unused_share
from planner.workload.tail_batching import rounds_of
from planner.workload.turns import answers, later_prefill

_PUBLISHED_AGES = (
    "Published: up to 4 versions harmless with a decoupled objective, unbounded harmful (AReaL); "
    "a share of half a batch no quicker than three tenths (verl)"
)


def workload_notes(workload: Workload, calls: tuple[Call, ...]) -> list[str]:
    """One line for each of: sampling, turns, decode mode, replay; none for plain single answers."""
    notes = []
    names = {call.name for call in calls}
    selects = workload.acceptance < 1.0 or workload.oversampling > 1.0
    if selects and {"generate", "actor_train"} <= names:
        rounds = f"{expected_rounds(workload):.3g}"
        notes.append(
            f"{rounds} round{'' if rounds == '1' else 's'} of generation on average, of "
            f"{100 * workload.oversampling:.0f} % of the batch each with {workload.acceptance:.0%} "
            f"of the groups kept; {unused_share(workload):.0%} of the responses are not trained on"
        )
    elif workload.token_budget is not None:
        notes.append(
            f"{workload.token_budget:,} tokens in every optimizer step; "
            f"{unused_share(workload):.0%} of the responses are not trained on"
        )
    if workload.partial_rollout is not None and "generate" in names:
        lengths = workload.response_length
        longest = float(expected_maximum(lengths, generated_sequences(workload)))
        steps = math.ceil(longest / period_tokens(lengths, longest, workload.partial_rollout))
        notes.append(
            f"partial rollouts: {workload.partial_rollout:.0%} of a batch goes on in the next step "
            f"under new weights; the longest response spans {steps} steps, whatever the staleness. "
            + _PUBLISHED_AGES
        )
    if workload.tail_batching is not None and "generate" in names:
        short, long = rounds_of(workload)
        notes.append(
            f"tail batching: {short.share:.0%} of the steps start {short.sequences:,} responses "
            f"and end with {workload.sequences_per_step:,}, after "
            f"{short.workload.response_length.histogram[-1][0]:,} tokens; {long.share:.0%} are "
            "long. Samples stay on-policy"
            + (
                ", but those that lose the race are dropped, which favours short ones"
                if workload.tail_batching.samples > 1.0
                else ""
            )
        )
    if answers(workload) > 0.0:
        later = later_prefill(workload)
        notes.append(
            f"{workload.turns.mean:g} turns a trajectory; after the first {later.new_tokens:,.0f} "
            f"new and {later.repeated_tokens:,.0f} repeated tokens are prefilled; a waiting "
            "trajectory keeps its cache"
        )
    exchange = workload.gradient_exchange
    if exchange.compression > 1.0 or exchange.local_steps > 1 or exchange.delayed:
        notes.append(
            "replicas exchange "
            + ("the gradients of the step before, " if exchange.delayed else "")
            + f"1/{exchange.compression:g} of a gradient's bytes every "
            f"{exchange.local_steps} optimizer step{'s' * (exchange.local_steps > 1)}: no RL run "
            "with it is published, so compare rewards with whole gradients first"
        )
    mode = decode_mode(workload)
    if mode.rows > 1.0:
        notes.append(
            f"{mode.passes_per_token:.2f} passes for each token, {mode.rows:.0f} tokens a pass"
        )
    for role, sequences in sorted(workload.replay_sequences.items()):
        notes.append(f"the {role} trains on {sequences:,} replayed sequences beside generation")
    return notes
