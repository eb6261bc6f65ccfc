"""`rlmplan tune` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from planner.cli.main import app

PROBLEM = """\
algorithm: grpo
models: {actor: Qwen/Qwen2.5-7B}
cluster: h100:1x8
batch: {prompts: 64, samples: 8}
prompt: {mean: 150, max: 1024}
response: {mean: 800, max: 2048}
max_staleness: 0
"""
LINES = "; ".join(f'echo "step:{i} - timing_s/gen:11.5 - timing_s/step:2{i}.25"' for i in (1, 2, 3))


def invoke(folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    (folder / "problem.yaml").write_text(PROBLEM)
    words = [
        "tune",
        str(folder / "problem.yaml"),
        "--top",
        "1",
        "-o",
        str(folder / "a b"),
        *arguments,
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_from_problem_to_the_best_plan_of_a_launcher(tmp_path: Path) -> None:
    command = "grep -q tensor_model_parallel_size {config} && test -x {script} && " + LINES
    options = ("--launcher", "verl", "--trials", "2", "--command", command)
    out, err = invoke(tmp_path, *options, "--json")
    found = json.loads(out)
    assert [each["status"] for each in found["trials"]] == ["ok", "ok"]
    assert found["best"]["step_s"] == 22.75
    assert "trial 0: 22.75 s a step" in err
    best = tmp_path / "a b" / "best"
    assert {path.name for path in best.iterdir()} >= {"run.sh", "plans.json", "overrides.txt"}
    # The same command again: nothing is left to do.
    text, err = invoke(tmp_path, *options)
    assert "measured 22.8 s a step" in text or "22.7" in text
    assert "trial 2" not in err


def test_a_run_without_figures_ends_with_an_error_code(tmp_path: Path) -> None:
    text, _ = invoke(tmp_path, "--trials", "1", "--command", "echo nothing", code=1)
    assert "no trial gave a figure" in text


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    for arguments, where in (
        (("--command", "true"), "--trials"),
        (("--trials", "1", "--command", "cat {script}"), "--command"),
        (("--trials", "1", "--command", "true", "--log-format", "x"), "--log-format"),
        (("--trials", "1", "--command", "true", "--storage", "x://me:s3cret@y"), "--storage"),
    ):
        (tmp_path / "problem.yaml").write_text(PROBLEM)
        words = ["tune", str(tmp_path / "problem.yaml"), "--top", "1", "-o", str(tmp_path / "o")]
        result = CliRunner().invoke(app, [*words, *arguments])
        assert where in str(result.exception), arguments
        assert "s3cret" not in str(result.exception)
