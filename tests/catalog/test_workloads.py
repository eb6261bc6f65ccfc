"""Problem files and options: what is read, what is assumed, what is refused and how."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from planner.catalog.workloads import load_problem, problem_from
from planner.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*po-*.yaml"))
OPTIONS = {
    "algorithm": "grpo",
    "models": {"actor": "Qwen/Qwen3-32B"},
    "cluster": "h100:4x8",
    "prompts": 64,
    "samples": 32,
    "response_mean": 3200.0,
    "response_max": 4096,
}
MINIMAL = """\
algorithm: grpo
models: {actor: Qwen/Qwen2.5-7B}
cluster: h100:1x8
batch: {prompts: 16, samples: 4}
response: {mean: 100, max: 400}
"""


def write(folder: Path, text: str, name: str = "problem.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_problem(write(folder, text))
    return str(caught.value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load(path: Path) -> None:
    problem = load_problem(path)
    assert problem.workload.name == path.stem
    assert problem.cluster.devices >= 8


def test_the_first_example_is_nemo_rls_recipe() -> None:
    path = next(path for path in EXAMPLES if path.stem == "grpo-qwen3-30b-a3b-4x8-h100")
    problem = load_problem(str(path))
    workload = problem.workload
    assert workload.sequences_per_step == 64 * 32
    assert workload.max_sequence_tokens == 4096
    assert workload.optimizer_steps == 4
    assert workload.models["reference"] == workload.models["actor"]
    assert any("reference model: the actor's" in note for note in workload.assumptions)
    assert problem.space == "nemo-rl-megatron"


def test_options_alone() -> None:
    problem = problem_from(**OPTIONS)
    workload = problem.workload
    assert (workload.prompts_per_step, workload.samples_per_prompt) == (64, 32)
    assert workload.response_length.mean_tokens == 3200.0
    assert workload.kl_weight == 0.0
    assert problem.space == "any"
    notes = "\n".join(workload.assumptions)
    for expected in (
        "prompt lengths: mean 110, max 512 tokens (not given)",
        "response lengths: lognormal with sigma 0.9",
        "optimizer steps: 1",
        "KL weight: 0 (no reference model is given)",
        "old log-probabilities: recomputed",
        "verifier: takes no time",
    ):
        assert expected in notes


def test_a_given_reference_means_a_kl_term() -> None:
    models = {"actor": "Qwen/Qwen2.5-7B", "reference": "Qwen/Qwen2.5-7B"}
    workload = problem_from(**{**OPTIONS, "models": models}).workload
    assert workload.kl_weight > 0
    assert any("KL weight" in note for note in workload.assumptions)
    unused = problem_from(**{**OPTIONS, "models": models}, kl_weight=0.0).workload
    assert any("does not run" in note for note in unused.assumptions)


def test_options_take_precedence_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    problem = problem_from(path, models={"actor": "Qwen/Qwen3-32B"}, prompts=8, cluster="h200:2x8")
    assert problem.workload.prompts_per_step == 8
    assert problem.workload.samples_per_prompt == 4
    assert problem.workload.models["actor"].name == "Qwen/Qwen3-32B"
    assert problem.cluster.devices == 16
    lengths = write(tmp_path, "100\n200\n", "lengths.txt")
    response = problem_from(path, lengths=lengths).workload.response_length
    assert (response.kind, response.mean_tokens, response.max_tokens) == ("histogram", 150.0, 400)


def test_every_way_to_give_lengths(tmp_path: Path) -> None:
    write(tmp_path, '{"tokens": 50}\n{"tokens": 350}\n', "measured.jsonl")
    base = MINIMAL.replace("response: {mean: 100, max: 400}\n", "")

    def response(text: str):
        return load_problem(write(tmp_path, base + text)).workload.response_length

    assert response("response: {mean: 90, max: 90, kind: fixed}").kind == "fixed"
    assert response("response: {mean: 90, max: 400, sigma: 0.5}").sigma == 0.5
    given = response("response: {histogram: {100: 3, 300: 1}}")
    assert (given.kind, given.mean_tokens, given.max_tokens) == ("histogram", 150.0, 300)
    measured = response("response: {file: measured.jsonl, max: 300}")
    assert measured.histogram == ((50, 1.0), (300, 1.0))


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep"
    (folder / "model").mkdir(parents=True)
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 1024,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    (folder / "model" / "config.json").write_text(json.dumps(config))
    write(folder, "groups: [{device: h100, nodes: 2, devices_per_node: 8}]", "mine.yaml")
    text = MINIMAL.replace("Qwen/Qwen2.5-7B", "model").replace("h100:1x8", "mine.yaml")
    path = write(folder, text)
    monkeypatch.chdir(tmp_path)
    problem = load_problem(Path("deep") / path.name)
    assert problem.workload.models["actor"].hidden_size == 512
    assert problem.cluster.devices == 16


def test_models_and_clusters_in_place(tmp_path: Path) -> None:
    config = (
        "{model_type: llama, hidden_size: 512, num_hidden_layers: 4, num_attention_heads: 8,"
        " intermediate_size: 1024, vocab_size: 32000, max_position_embeddings: 4096}"
    )
    text = MINIMAL.replace("Qwen/Qwen2.5-7B", config).replace(
        "h100:1x8", "{groups: [{device: a100, nodes: 1}]}"
    )
    problem = load_problem(write(tmp_path, text))
    assert problem.workload.models["actor"].num_layers == 4
    assert problem.cluster.devices == 8


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("algorithm: grpo\n", "", "missing: algorithm (--algorithm)"),
        ("prompts: 16", "promts: 16", "batch.promts: unknown field. Did you mean prompts"),
        ("prompts: 16", "prompts: -1", "batch.prompts"),
        ("prompts: 16", "prompts: 16.5", "batch.prompts"),
        ("prompts: 16", "prompts: 999999999", "At most 100,000,000 are planned for"),
        ("mean: 100", "mean: 500", "response.mean: the mean, 500 tokens, exceeds the limit"),
        ("mean: 100", "mean: .nan", "response.mean: must be a finite number, given nan"),
        ("mean: 100, max: 400", "max: 400", "missing field `mean`"),
        ("mean: 100, max: 400", "mean: 100", "missing field `max`"),
        ("mean: 100", "mean: 100, file: x", "more than one way"),
        ("mean: 100, max: 400", "file: nowhere.txt", "nowhere.txt: no such file"),
        ("mean: 100, max: 400", "histogram: {x: 1}", "'x' is not a length"),
        ("mean: 100, max: 400", "mean: 100, max: 400000", "supports"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7C", "models.actor"),
        ("h100:1x8", "h1000:1x8", "h1000"),
        ("cluster: h100:1x8", "cluster: {groups: []}", "cluster"),
        ("grpo", "grpo\nkl_weigth: 1", "Did you mean kl_weight"),
        ("grpo", "grpo\nold_logprobs: never", "old_logprobs"),
        ("samples: 4", "samples: 4, optimizer_steps: 7", "not a multiple of optimizer_steps 7"),
        ("samples: 4", "samples: 4, optimizer_steps: 7", "batch.optimizer_steps: the 64 responses"),
        ("samples: 4", "samples: 4, optimizer_steps: 7", "Near divisors: 4 and 8."),
        ("samples: 4", "samples: 4, optimizer_steps: 65", "Near divisors: 64."),
        ("samples: 4", "samples: 4, critic_optimizer_steps: 5", "batch.critic_optimizer_steps: "),
        ("samples: 4", "samples: 4, optimizer_steps: 4503599627370496", "batch.optimizer_steps"),
        ("samples: 4", "samples: 4, epochs: 4503599627370496", "batch.epochs: should be less"),
        ("samples: 4", "samples: 1000001", "batch.samples: should be less"),
        ("prompts: 16", "prompts: 1000000001", "batch.prompts: should be less"),
        ("grpo", "grpo\nmax_staleness: 1025", "max_staleness: should be less"),
        ("grpo", "grpo\nkl_weight: .inf", "kl_weight: must be a finite number, given inf"),
        ("grpo", "grpo\ndeadline_s: 1e300", "deadline_s: should be less"),
        ("grpo", "grpo\ntop: 1000", "top: should be less"),
        ("grpo", "grpo\nenvironment: {latency_s: 1e300}", "environment.latency_s"),
        ("grpo", 'grpo\nname: "a\\nb"', "name: holds a control character"),
        ("algorithm: grpo\n", "", "Give it in a problem file (see examples/) or as an option."),
        ("mean: 100", "mean: 1e-300", "response.mean: should be greater"),
        ("mean: 100", "mean: 0.5", "response.mean: should be greater than or equal to 1"),
        ("mean: 100", "mean: 100, sigma: 1e300", "response.sigma: should be less"),
        ("mean: 100", "mean: 100, sigma: 1e-300", "response.sigma: should be greater"),
        ("mean: 100", "mean: 100, field: x", "response.field: names the length"),
        ("mean: 100", "mean: 100, kind: fixed, sigma: 1", "response.sigma: has no effect"),
        (
            "mean: 100",
            "histogram: {5: 1}, kind: fixed",
            "response.kind: has no effect",
        ),
        ("mean: 100", "file: x, sigma: 1", "response.sigma: has no effect beside `file`"),
        ("mean: 100, max: 400", "histogram: {5: 1e308, 6: 1e308}", "response.histogram.5: should"),
        (
            "mean: 100, max: 400",
            "histogram: {5: 1e-308}",
            "response.histogram.5: should be",
        ),
        ("mean: 100, max: 400", f"histogram: {{'00000000001{'9' * 400}': 1}}", "is not a length"),
    ],
)
def test_mistakes_name_the_place_and_the_remedy(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in MINIMAL
    message = refused(tmp_path, MINIMAL.replace(old, new))
    assert expected in message
    assert "Traceback" not in message


@pytest.mark.parametrize("text", ["", "[]", "3", "a: [", "models: 3", "models: {actor: [1]}"])
def test_files_that_are_no_problem_are_refused(tmp_path: Path, text: str) -> None:
    assert "problem.yaml" in refused(tmp_path, text)


def test_missing_files_are_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_problem("nowhere.yaml")


def test_wrong_options_are_named() -> None:
    with pytest.raises(InputError, match=r"^--prompts: .*given -4"):
        problem_from(**{**OPTIONS, "prompts": -4})
    with pytest.raises(InputError, match=r"^--actor: .*Qwen3-32C"):
        problem_from(**{**OPTIONS, "models": {"actor": "Qwen/Qwen3-32C"}})
    with pytest.raises(InputError, match=r"missing: models\.actor \(--actor\), cluster"):
        problem_from(algorithm="grpo", prompts=1, samples=1)
    with pytest.raises(InputError, match="--response-max"):
        problem_from(**{**OPTIONS, "response_max": None})
    with pytest.raises(InputError, match="either --lengths or --response-mean"):
        problem_from(**OPTIONS, lengths=Path("x"))
    with pytest.raises(TypeError, match="unknown options"):
        problem_from(**OPTIONS, promts=3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("option", ["response_mean", "prompt_mean", "kl_weight"])
def test_an_option_that_is_not_a_number_is_named(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^--{option.replace('_', '-')}: must be a finite"):
        problem_from(**{**OPTIONS, option: value})


def test_an_option_above_the_files_limit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(MINIMAL)
    with pytest.raises(InputError, match=r"^--response-mean: the mean, 500 tokens, exceeds"):
        problem_from(path, response_mean=500.0)


def test_an_option_that_does_not_divide_the_batch_is_named_with_divisors() -> None:
    with pytest.raises(InputError, match=r"^--optimizer-steps: .*Near divisors: 4 and 8\."):
        problem_from(**{**OPTIONS, "prompts": 16, "samples": 4}, optimizer_steps=7)


def test_rounding_does_not_lift_a_mean_over_the_longest(tmp_path: Path) -> None:
    text = MINIMAL.replace("mean: 100, max: 400", "histogram: {3: 0.1}")
    path = tmp_path / "problem.yaml"
    path.write_text(text)
    assert 0.1 * 3 / 0.1 > 3
    assert load_problem(path).workload.response_length.mean_tokens == 3


def test_a_problem_file_with_a_byte_order_mark_loads(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(MINIMAL, encoding="utf-8-sig")
    assert load_problem(path).workload.algorithm == "grpo"


def test_one_end_of_the_prompt_lengths_is_enough() -> None:
    long = problem_from(**OPTIONS, prompt_mean=2000.0).workload.prompt_length
    assert (long.mean_tokens, long.max_tokens) == (2000.0, 8000)
    short = problem_from(**OPTIONS, prompt_max=64).workload.prompt_length
    assert (short.mean_tokens, short.max_tokens) == (16.0, 64)
