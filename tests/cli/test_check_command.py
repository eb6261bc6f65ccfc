"""`rlmplan check`: exit codes, text and JSON, in this process and in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.catalog.presets import preset_content
from planner.cli.main import app
from planner.errors import InputError
from planner.report.check import render_check
from planner.report.text import to_text
from planner.schema.check import CheckReport, IgnoredSetting, OneChange

SCRIPT = """#!/bin/bash
TP=2
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=64 \\
    data.max_prompt_length=1024 data.max_response_length=$((1024 * 3)) \\
    data.train_files=$(touch made) \\
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=${TP} \\
    trainer.nnodes=1 trainer.n_gpus_per_node=8 "$@"
"""
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    return path


def run(script: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        app,
        ["check", str(script), "--launcher", "verl", "--cluster", "h100:1x8", *more],
        catch_exceptions=False,
    )
    return result.exit_code, result.stdout


def test_a_configuration_that_fits(script: Path) -> None:
    code, text = run(script, "--no-search")
    assert code == 0
    assert "FITS: step time" in text
    assert "TP2" in text
    assert "no influence on the plan: data.train_files" in text
    assert not Path("made").exists()


def test_one_that_will_not_run_says_which_key_and_what_is_legal(script: Path) -> None:
    code, text = run(script, "--no-search", "--set", f"{TP}=3")
    assert code == 1
    assert "WILL NOT RUN" in text
    assert f"{TP}=4" in text


def test_the_best_plan_in_the_launchers_keys_unbroken(script: Path) -> None:
    code, text = run(script, "--set", f"{TP}=8")
    assert code == 0
    assert "Best plan on the same devices" in text
    lines = text.splitlines()
    assert f"  - {TP}=8" in lines
    assert any(line.startswith(f"  + {TP}=") for line in lines)


def test_json_is_the_report(script: Path) -> None:
    code, text = run(script, "--no-search", "--json", "--response-mean", "500")
    report = CheckReport.model_validate(json.loads(text), strict=False)
    assert code == 0
    assert report.verdict == "fits"
    assert report.workload.response_length.mean_tokens == 500


def test_bad_input_is_exit_code_2_with_one_message(script: Path) -> None:
    command = [sys.executable, "-m", "planner.cli.main", "check", str(script)]
    for more, message in (
        (["--launcher", "nobody", "--cluster", "h100:1x8"], "unknown launcher"),
        (["--launcher", "verl", "--cluster", "nothing"], "nothing"),
        (["--launcher", "verl", "--cluster", "h100:1x8", "--set", "x"], "'x' is not key=value"),
        (["--launcher", "nemo-rl", "--cluster", "h100:1x8"], "there is no YAML file"),
        (
            ["--launcher", "verl", "--cluster", "h100:1x8", "--response-mean", "9999"],
            "--response-mean: the mean, 9999 tokens, exceeds",
        ),
    ):
        result = subprocess.run(
            [*command, *more, "--no-search"], capture_output=True, text=True, check=False
        )
        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_folder_of_exported_files_is_read(script: Path) -> None:
    code, text = run(script.parent, "--no-search", "--model", "Qwen/Qwen3-4B")
    assert code == 0
    assert "Qwen/Qwen3-4B" in text


def test_the_best_plan_is_written_as_files_that_check_reads(script: Path, tmp_path: Path) -> None:
    """`run.sh` alone is given: the overrides that it names are read from beside it."""
    out = tmp_path / "out"
    rate = "actor_rollout_ref.actor.optim.lr=2e-6"
    code, text = run(script, "--set", f"{TP}=8", "--set", rate, "-o", str(out), "--json")
    assert code == 0
    best = CheckReport.model_validate(json.loads(text), strict=False).best
    assert best is not None
    changes = (out / "changes.txt").read_text().splitlines()
    assert f"- {TP}=8" in changes
    assert any(line.startswith(f"+ {TP}=") for line in changes)
    left = "1 of your settings is not the plan's concern and is not in these files:"
    at = changes.index(f"# {left}")
    assert changes[at + 1 :] == [f"# {rate}"]
    for written in (out / "run.sh", out):
        code, text = run(written, "--no-search", "--json")
        again = CheckReport.model_validate(json.loads(text), strict=False).prediction
        assert code == 0
        assert again is not None
        assert again.step_time_s == pytest.approx(best.step_time_s, rel=0.02)


def test_a_file_of_settings_is_read_whatever_its_name(script: Path) -> None:
    (script.parent / "changes.txt").write_text("nosuch.key=3\n")
    assert run(script.parent, "--no-search")[0] == 1


def test_settings_to_copy_are_never_cut(script: Path) -> None:
    """One change may be of many settings: lines break between them, and nowhere else."""
    _, text = run(script, "--no-search", "--json")
    report = CheckReport.model_validate(json.loads(text), strict=False)
    settings = (*(f"actor_rollout_ref.actor.tokens_{n}=16896" for n in range(5)), "x" * 150, "b=2")
    change = OneChange(settings=settings, meaning="a change", step_time_s=1.0, verdict="fits")
    lines = to_text(render_check(report.model_copy(update={"remedies": (change,)}))).splitlines()
    start = lines.index("One change that helps") + 1
    words = " ".join(lines[start:]).split()
    assert words[: len(settings)] == list(settings)
    assert all(len(line) <= 100 for line in lines[start:] if settings[-2] not in line)


def test_memory_that_is_short_is_told_from_the_total(script: Path) -> None:
    arguments = ("--no-search", "--set", "actor_rollout_ref.rollout.gpu_memory_utilization=0.95")
    report = CheckReport.model_validate(
        json.loads(run(script, *arguments, "--json")[1]), strict=False
    )
    (short,) = report.shortages
    assert short.needed_bytes - short.room_bytes == pytest.approx(short.short_bytes)
    need, room = short.needed_bytes / 2**30, short.room_bytes / 2**30
    over = f"generate: {need - room:.1f} GiB too much on a device ({need:.1f} of {room:.1f});"
    assert over in run(script, *arguments)[1]


def test_nothing_is_written_without_a_search(script: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--no-search looks for none"):
        run(script, "--no-search", "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_an_engines_share_that_is_too_large_is_named_with_one_that_fits(script: Path) -> None:
    share = "actor_rollout_ref.rollout.gpu_memory_utilization"
    code, text = run(script, "--no-search", "--json", "--set", f"{share}=0.95")
    assert code == 1
    (short,) = CheckReport.model_validate(json.loads(text), strict=False).shortages
    assert short.cause.startswith(f"{share}=0.95 gives the engine")
    most = short.cause.rpartition(" ")[2]
    assert run(script, "--no-search", "--set", f"{share}={most}")[0] == 0
    above = f"{share}={float(most) + 0.02:.2f}"
    assert run(script, "--no-search", "--set", above)[0] == 1


def test_a_preset_gives_the_mean_lengths(script: Path) -> None:
    code, text = run(script, "--no-search", "--json", "--preset", "grpo")
    report = CheckReport.model_validate(json.loads(text), strict=False)
    assert code == 0
    content = preset_content("grpo")
    assert report.workload.response_length.mean_tokens == content["response"]["mean"]
    assert "mean response" not in " ".join(report.notes)


def test_a_misspelt_setting_is_a_problem_at_the_top_and_said_once(script: Path) -> None:
    wrong = "actor_rollout_ref.rollout.gpu_memory_utilisation"
    code, text = run(script, "--no-search", "--set", f"{wrong}=0.6")
    assert code == 1
    top, _, rest = text.partition("Settings that do not enter the prediction")
    head = " ".join(top.partition("where the time goes")[0].split())
    assert f"no setting {wrong}. Did you mean {wrong.replace('isation', 'ization')}?" in head
    assert wrong not in rest


def test_a_setting_that_a_lenient_launcher_drops_is_at_the_top_too(script: Path) -> None:
    _, text = run(script, "--no-search", "--json")
    report = CheckReport.model_validate(json.loads(text), strict=False)
    lost = IgnoredSetting(
        key="a.bb", value="1", where="f", reason="Did you mean a.b?", unknown=True
    )
    shown = to_text(render_check(report.model_copy(update={"ignored": (lost, *report.ignored)})))
    top, _, rest = shown.partition("where the time goes")
    assert "Settings that the launcher does not have\n  Did you mean a.b?: a.bb" in top
    assert "a.bb" not in rest


def test_devices_that_stay_idle_are_counted(script: Path) -> None:
    words = "it uses 8 of the 16 devices given"
    assert words in run(script, "--no-search", "--cluster", "h100:2x8")[1]
    assert "devices given" not in run(script, "--no-search")[1]


def test_settings_that_the_written_files_lack_are_said_on_one_line(
    script: Path, tmp_path: Path
) -> None:
    more = [f"trainer.{key}=7" for key in ("save_freq", "test_freq", "total_epochs")]
    result = CliRunner().invoke(
        app,
        ["check", str(script), "--launcher", "verl", "--cluster", "h100:1x8", "--deadline", "3"]
        + ["-o", str(tmp_path / "out")]
        + [word for setting in more for word in ("--set", setting)],
        catch_exceptions=False,
    )
    assert (
        "note: 3 of your settings are not the plan's concern and are not in these files: "
        "trainer.save_freq, trainer.test_freq, trainer.total_epochs\n"
    ) in result.stderr
    lines = (tmp_path / "out" / "changes.txt").read_text().splitlines()
    assert lines[-3:] == [f"# {setting}" for setting in more]
