"""Logs as the launchers write them: lines composed as their own sources compose them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.launchers.logs import log_formats, read_log

GIB = 1024.0**3

VERL = """\
\x1b[36m(TaskRunner pid=4711)\x1b[0m step:1 - global_seqlen/min:5612 - actor/pg_loss:0.001 - \
perf/max_memory_allocated_gb:41.25 - timing_s/start_profile:2e-05 - timing_s/gen:31.5 - \
timing_s/reward:0.2 - timing_s/old_log_prob:4.75 - timing_s/ref:4.5 - timing_s/adv:0.1 - \
timing_s/update_actor:20.25 - timing_s/update_weights:2.5 - timing_s/step:64.0 - \
timing_per_token_ms/gen:0.03 - perf/total_num_tokens:812345 - perf/throughput:1586.6
(TaskRunner pid=4711) Training Progress:   1%|          | 2/200 [02:04<3:20:01, 60.4s/it]
(TaskRunner pid=4711) step:2 - actor/pg_loss:np.float64(-1.5e-03) - \
perf/max_memory_allocated_gb:np.float64(44.5) - timing_s/gen:29.5 - timing_s/old_log_prob:4.25 - \
timing_s/ref:4.0 - timing_s/update_actor:19.75 - timing_s/update_weights:2.25 - \
timing_s/step:60.5
"""

NEMO_RL = """\
========================= Step 1/3 =========================
▶ Generating responses for batch of size 32...

📊 Training Results:
  • Loss: 0.0012
  • Avg Reward: 0.4000

⏱️  Timing:
  • Total step time: 52.25s
  • generation: 25.50s (48.8%)
  • policy_training: 15.00s (28.7%)
  • policy_and_reference_logprobs: 6.25s (12.0%)
  • prepare_for_generation/total: 3.00s (5.7%)
  • prepare_for_generation/transfer_and_update_weights: 2.50s (4.8%)
  ⏱️  Validation Timing:
    • Total validation time: 12.00s
========================= Step 2/3 =========================
⏱️  Timing:
  • Total step time: 48.00s
  • generation: 24.50s (51.0%)
  • policy_training: 14.00s (29.2%)
"""

OPENRLHF = """\
INFO 08-13 19:25:45 ppo_trainer.py:547] ✨ Global step 1: {'policy_loss': 0.01, 'kl': 0.0, \
'timing/make_experience': 8.5, 'timing/ppo_train': 22.0, 'timing/broadcast': 1.5, \
'timing/generation': 30.0, 'timing/step_total': 62.0}
INFO 08-13 19:26:45 ppo_trainer.py:547] ✨ Global step 2: {'policy_loss': 0.02, 'kl': 0.1, \
'timing/make_experience': 8.0, 'timing/ppo_train': 21.0, 'timing/broadcast': 1.25, \
'timing/generation': 29.0, 'timing/step_total': 59.25}
"""

SLIME = """\
[2026-08-21 17:14:19] rollout_metrics.py:268 - perf 0: {'perf/rollout_time': 41.5, \
'perf/tokens_per_gpu_per_sec': 812.0}
[2026-08-21 17:14:20] memory_utils.py:49 - [Rank 0] Memory-Usage after offload model: \
{'gpu': '0', 'total_GB': 79.11, 'free_GB': 20.0, 'used_GB': 59.11, 'allocated_GB': 40.0}
[2026-08-21 17:15:19] train_metric_utils.py:401 - perf 0: {'perf/sleep_time': 1.5, \
'perf/train_wait_time': 44.0, 'perf/log_probs_time': 5.0, 'perf/ref_log_probs_time': 4.5, \
'perf/actor_train_time': 19.0, 'perf/train_time': 30.0, 'perf/update_weights_time': 2.0, \
'perf/step_time': 74.0, 'perf/wait_time_ratio': 0.59}
"""

TRL = """\
{'loss': '0.0021', 'grad_norm': '0.62', 'learning_rate': '1e-06', 'reward': '0.3', \
'step_time': '30.5', 'epoch': '0.01'}
{'loss': 0.0021, 'grad_norm': 0.5, 'reward': 0.3, 'step_time': 5.5, 'epoch': 0.02}
{'loss': 0.0021, 'grad_norm': 0.5, 'reward': 0.3, 'step_time': 31.5, 'epoch': 0.03}
{'loss': 0.0021, 'grad_norm': 0.5, 'reward': 0.3, 'step_time': 4.5, 'epoch': 0.04}
{'train_runtime': 73.2, 'train_samples_per_second': 3.4, 'train_loss': 0.002, 'epoch': 0.04}
"""

JSON_LINES = "\n".join(
    [
        "starting",
        json.dumps({"step_time_s": 10.5, "stages_s": {"generate": 6.5, "train": 3.0}}),
        json.dumps({"peak_memory_gib": 50}),
        json.dumps({"step_time_s": 9.5, "stages_s": {"generate": 6.0, "train": 2.75}}),
    ]
)


@pytest.mark.parametrize("form", ["verl", "auto"])
def test_verl(form: str) -> None:
    found = read_log(VERL, form)
    assert found.steps_s == (64.0, 60.5)
    assert found.stages_s["generate"] == (31.5, 29.5)
    assert found.stages_s["reference_logprobs"] == (4.5, 4.0)
    assert found.stages_s["actor_train"] == (20.25, 19.75)
    assert found.stages_s["weight sync"] == (2.5, 2.25)
    assert found.peak_memory_bytes == 44.5 * GIB


@pytest.mark.parametrize("form", ["nemo-rl", "auto"])
def test_nemo_rl_without_the_validation_time(form: str) -> None:
    found = read_log(NEMO_RL, form)
    assert found.steps_s == (52.25, 48.0)
    assert found.stages_s["generate"] == (25.5, 24.5)
    assert found.stages_s["train"] == (15.0, 14.0)
    assert found.stages_s["forward"] == (6.25,)
    assert found.stages_s["weight sync"] == (2.5,)


@pytest.mark.parametrize("form", ["openrlhf", "auto"])
def test_openrlhf(form: str) -> None:
    found = read_log(OPENRLHF, form)
    assert found.steps_s == (62.0, 59.25)
    assert found.stages_s["generate"] == (30.0, 29.0)
    assert found.stages_s["forward"] == (8.5, 8.0)
    assert found.stages_s["train"] == (22.0, 21.0)


@pytest.mark.parametrize("form", ["slime", "auto"])
def test_slime_joins_the_two_lines_of_a_step(form: str) -> None:
    found = read_log(SLIME, form)
    assert found.steps_s == (74.0,)
    assert found.stages_s["generate"] == (41.5,)
    assert found.stages_s["actor_train"] == (19.0,)
    assert found.peak_memory_bytes == pytest.approx(59.11 * GIB)


def test_trl_counts_optimizer_steps() -> None:
    assert read_log(TRL).steps_s == (30.5, 5.5, 31.5, 4.5)
    assert read_log(TRL, "trl", optimizer_steps=2).steps_s == (36.0, 36.0)
    # One line that is a mean over eight optimizer steps, say.
    assert read_log(TRL, optimizer_steps=8).steps_s == (8 * 18.0,)


@pytest.mark.parametrize("form", ["json", "auto"])
def test_json_lines(form: str) -> None:
    found = read_log(JSON_LINES, form)
    assert found.steps_s == (10.5, 9.5)
    assert found.stages_s == {"generate": (6.5, 6.0), "train": (3.0, 2.75)}
    assert found.peak_memory_bytes == 50 * GIB


def test_a_step_that_is_logged_twice_counts_once() -> None:
    assert read_log(OPENRLHF + OPENRLHF).steps_s == (62.0, 59.25)


@settings(max_examples=60)
@given(st.text(max_size=300), st.sampled_from(["auto", *log_formats()]))
def test_any_text_can_be_read(text: str, form: str) -> None:
    read_log(text, form)


@settings(max_examples=60)
@given(st.sampled_from([VERL, NEMO_RL, OPENRLHF, SLIME, TRL, JSON_LINES]), st.data())
def test_a_log_that_is_cut_anywhere_has_only_whole_figures(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    whole = read_log(text)
    found = read_log(text[:cut])
    assert len(found.steps_s) <= len(whole.steps_s)
    # A number may be cut short, so all steps but the last one cut are those of the whole log.
    assert found.steps_s[:-1] == whole.steps_s[: max(0, len(found.steps_s) - 1)]
