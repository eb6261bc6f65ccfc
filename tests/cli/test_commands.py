"""The commands, in process and as a real process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import PlannerError
from planner.schema import PlanSet

SMALL = [
    *("plan", "--algorithm", "grpo", "--actor", "Qwen/Qwen2.5-7B", "--cluster", "h100:1x8"),
    *("--prompts", "64", "--samples", "8", "--response-mean", "800", "--response-max", "2048"),
    *("--space", "verl-fsdp"),
]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner.cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def plans_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plans.json"
    path.write_text(invoke(*SMALL, "--json"))
    return path


def test_json_is_all_that_stands_on_stdout(plans_file: Path) -> None:
    PlanSet.model_validate_json(plans_file.read_text())


def test_text_fits_100_columns_and_says_what_matters() -> None:
    text = invoke(*SMALL)
    assert max(len(line) for line in text.splitlines()) <= 100
    for word in ("generate", "actor_train", "weight_sync", "Bounds", "proven best", "Assumed"):
        assert word in text
    assert "$" in text
    assert "80 % range" in text


def test_output_holds_the_plans_and_files_for_each(tmp_path: Path) -> None:
    invoke(*SMALL, "--output", str(tmp_path / "out"))
    plan_set = PlanSet.model_validate_json((tmp_path / "out" / "plans.json").read_text())
    for plan in plan_set.plans:
        folder = tmp_path / "out" / f"plan-{plan.rank}" / "verl"
        assert (folder / "run.sh").stat().st_mode & 0o100
        assert (folder / "overrides.txt").read_text().strip()
    assert not list((tmp_path / "out").rglob(".*"))


def test_trace_is_that_of_the_best_plan(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    plan_set = PlanSet.model_validate_json(invoke(*SMALL, "--json", "--trace", str(trace)))
    events = json.loads(trace.read_text())["traceEvents"]
    trained = next(event for event in events if event["name"] == "actor_train")
    best = plan_set.plans[0].calls["actor_train"]
    assert trained["ts"] + trained["dur"] == pytest.approx(1e6 * (best.start_s + best.time_s))


def test_capacity_answers_how_many_devices_and_what_it_costs() -> None:
    arguments = [
        *("capacity", *SMALL[1:5], *SMALL[7:], "--cluster", "h200:1x2", "--cluster", "h100:1x2"),
        *("--steps", "5000", "--within", "7d"),
    ]
    text = invoke(*arguments)
    assert max(len(line) for line in text.splitlines()) <= 100
    for words in ("Answer", "5,000 steps", "within 7 days", "h200", "$"):
        assert words in text
    content = json.loads(invoke(*arguments, "--json"))
    assert content["within_s"] == 7 * 86_400
    late = CliRunner().invoke(app, [*arguments[:-1], "2h"], catch_exceptions=False)
    assert late.exit_code == 3
    for words in ("within 2 hours", "none of them does"):
        assert words in late.stdout
    assert {choice["cluster"] for choice in content["choices"]} <= {"h100:1x2", "h200:1x2"}


def test_no_word_of_a_help_text_is_taken_for_markup() -> None:
    """Words in brackets have to be escaped, or they vanish."""
    assert "rlmplan[report]" in "".join(invoke("plan", "--help").replace("│", "").split())
    left = [typer.main.get_command(app)]
    texts = []
    while left:
        command = left.pop()
        texts += [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
        left += getattr(command, "commands", {}).values()
    assert len(texts) > 100
    assert [text for text in texts if re.search(r"(?<!\\)\[[a-z/]", text)] == []


def test_export_writes_the_files_of_one_plan(plans_file: Path, tmp_path: Path) -> None:
    printed = invoke("export", str(plans_file), "--to", "verl", "-o", str(tmp_path / "x"))
    assert sorted(Path(line).name for line in printed.splitlines()) == sorted(
        path.name for path in (tmp_path / "x").iterdir()
    )


def test_export_to_a_launcher_that_cannot_run_the_plan_says_why(plans_file: Path) -> None:
    result = process("export", str(plans_file), "--to", "slime", "-o", "unused")
    assert result.returncode == 2
    assert "slime cannot run plan 1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plan"], 2, ["missing", "--algorithm"]),
        (["plan", "absent.yaml"], 2, ["absent.yaml", "no such file"]),
        ([*SMALL, "--algorithm", "grop"], 2, ["grop", "Did you mean grpo"]),
        ([*SMALL, "--actor", "Qwen/Qwen2.5-7"], 2, ["Qwen/Qwen2.5-7", "Did you mean"]),
        ([*SMALL, "--cluster", "h100"], 2, ["'h100'", "NODES"]),
        ([*SMALL, "--cluster", "h101:1x8"], 2, ["h101", "Did you mean"]),
        ([*SMALL, "--cluster", "h100:0x8"], 2, ["h100:0x8", "nodes must be between 1"]),
        ([*SMALL, "--prompts", "-3"], 2, ["--prompts"]),
        ([*SMALL, "--prompts", "many"], 2, ["--prompts"]),
        ([*SMALL, "--response-mean", "nan"], 2, ["finite"]),
        ([*SMALL, "--response-mean", "5000"], 2, ["exceeds"]),
        ([*SMALL, "--samples", "1"], 2, ["GRPO", "only one"]),
        ([*SMALL, "--space", "verl"], 2, ["verl", "verl-fsdp"]),
        ([*SMALL, "--objective", "fun"], 2, ["objective"]),
        ([*SMALL, "--deadline", "-1"], 2, ["deadline"]),
        ([*SMALL, "--trace", ""], 2, ["--trace", "names no file"]),
        ([*SMALL, "--actor", "meta-llama/Llama-3.1-405B"], 3, ["no plan fits", "GiB"]),
        (["export", "absent.json", "--to", "verl"], 2, ["absent.json"]),
        (["analyze"], 2, ["problem file or a plan file", "--preset"]),
        (["analyze", "plans.json", "--preset", "grpo"], 2, ["a file or a preset"]),
        (["pareto"], 2, ["problem file", "--preset"]),
        (["capacity", "--preset", "grpo"], 2, ["--steps", "neither"]),
        (["capacity", "--preset", "grpo", "--steps", "9", "--within", "7"], 2, ["duration", "7d"]),
        (["pareto", "--preset", "grpo", "--launcher", "verl", "--space", "any"], 2, ["--space"]),
        (["pareto", "--preset", "grpp"], 2, ["grpp"]),
        (["schema", "Plann"], 2, ["Did you mean Plan?"]),
        (["models", "show", "nobody/nothing"], 2, ["nobody/nothing"]),
        (["hardware", "show", "h100-80-sx"], 2, ["h100-80-sx"]),
        (["hardware", "show", "h101"], 2, ["h101", "Did you mean"]),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else None,
)
def test_bad_input_gets_one_clear_message(
    arguments: list[str], code: int, words: list[str], tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, PlannerError):
        assert result.exception.exit_code == code
        message = str(result.exception)
    elif isinstance(result.exception, OSError):
        assert code == 2
        message = str(result.exception)
    else:
        assert result.exit_code == code, result.exception
        message = result.output
    for word in words:
        assert word in message


def test_a_real_process_prints_the_message_and_no_traceback(tmp_path: Path) -> None:
    result = process(*SMALL, "--cluster", "h100:zx8", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("rlmplan: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "content", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'{"plans": 3}', b"[" * 100_000]
)
def test_export_of_a_broken_file_says_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_bytes(content)
    result = process("export", str(path), "--to", "verl", "-o", str(tmp_path / "out"))
    assert result.returncode == 2
    assert str(path) in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def set_deep(content: dict[str, Any], path: str, value: object) -> None:
    *steps, last = path.split(".")
    for step in steps:
        content = content[int(step)] if isinstance(content, list) else content[step]
    content[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("plans.0.assignment.meshes.generate.first_node", 1000, ["meshes.generate", "outside"]),
        ("plans.0.assignment.meshes.generate.devices_per_node", 16, ["meshes.generate"]),
        ("plans.0.assignment.framework", "nope", ["nope"]),
        ("plans.0.assignment.space", "../../x", ["../../x"]),
        ("plans.0.calls.generate.strategy.tp", 64, ["calls.generate", "assignment"]),
        ("plans.0.fits", False, ["does not fit"]),
        ("plans.0.rank", 2, ["equal rank"]),
        ("schema_version", 99, ["schema_version 99"]),
    ],
)
def test_export_refuses_plans_that_do_not_hold_together(
    path: str, value: object, words: list[str], plans_file: Path, tmp_path: Path
) -> None:
    content = json.loads(plans_file.read_text())
    set_deep(content, path, value)
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(content))
    rank = "2" if path == "plans.0.rank" else "1"
    result = CliRunner().invoke(
        app, ["export", str(edited), "--to", "verl", "--rank", rank, "-o", str(tmp_path / "out")]
    )
    assert isinstance(result.exception, PlannerError), result.output
    assert result.exception.exit_code == 2
    for word in words:
        assert word in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["calls", "assignment.meshes", "assignment.strategies"])
@pytest.mark.parametrize(
    ("command", "options"),
    [("export", ["--to", "verl"]), ("analyze", []), ("replan", ["--cluster", "h100:2x8"])],
)
def test_a_plan_that_lacks_a_call_is_refused(
    command: str, options: list[str], part: str, plans_file: Path, tmp_path: Path
) -> None:
    content = json.loads(plans_file.read_text())
    lacking = content["plans"][0]
    for key in part.split("."):
        lacking = lacking[key]
    del lacking["actor_train"]
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(content))
    result = CliRunner().invoke(app, [command, str(edited), *options])
    assert isinstance(result.exception, PlannerError), result.output
    assert result.exception.exit_code == 2
    assert "actor_train" in str(result.exception)


def test_an_output_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = process(*SMALL, "--output", str(tmp_path / "file" / "out"))
    assert result.returncode == 2
    assert result.stderr.startswith(f"rlmplan: --output {tmp_path / 'file' / 'out'}: ")
    assert result.stderr.endswith(f"{tmp_path / 'file'} is a file. Give a folder.\n")
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "PIPE"],
        [*SMALL, "--space", "PIPE"],
        [*SMALL, "--actor", "PIPE"],
        [*SMALL, "--cluster", "PIPE"],
        [*SMALL[:-6], *SMALL[-4:], "--lengths", "PIPE"],
    ],
)
def test_a_pipe_is_refused_and_not_waited_for(arguments: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    arguments = [str(pipe) if word == "PIPE" else word for word in arguments]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, PlannerError)
    assert str(result.exception).startswith(f"{pipe}: not a regular file")


def test_the_catalogue_can_be_looked_at() -> None:
    assert "Qwen/Qwen3-32B" in invoke("models", "list")
    assert "32.76 B parameters" in invoke("models", "show", "qwen3-32b")
    assert json.loads(invoke("models", "show", "qwen3-32b", "--json"))["num_layers"] == 64
    assert len(json.loads(invoke("models", "list", "--json"))) > 60
    assert "h100-80-sxm" in invoke("hardware", "list")
    assert "memory_bytes" in invoke("hardware", "show", "b200-sxm")
    assert json.loads(invoke("hardware", "show", "h100:4x8", "--json"))["groups"][0]["nodes"] == 4
    assert len(json.loads(invoke("hardware", "list", "--json"))["devices"]) == 36
    assert json.loads(invoke("schema", "PlanSet"))["title"] == "PlanSet"


def test_the_active_count_says_what_it_includes() -> None:
    text = invoke("models", "show", "Qwen/Qwen3-30B-A3B")
    # 151,936 x 2,048 = 0.311 B parameters in each of the two embedding matrices.
    assert "30.53 B parameters" in text
    assert "3.353 B active for each token, both embeddings included" in text
    assert "3.042 B active without the input embedding" in text
    assert "2.731 B active without both embeddings" in text
    assert "tied" in invoke("models", "show", "Qwen/Qwen3-0.6B").splitlines()[2]


def test_a_cluster_type_is_shown_without_a_size() -> None:
    shown = json.loads(invoke("hardware", "show", "h100", "--json"))
    assert shown["device"] == "h100-80-sxm"
    assert shown["devices_per_node"] == 8
    assert shown["host_memory_gib"] == 2048
    assert "InfiniBand" in shown["network"]
    assert shown["price_usd_per_device_hour"] > 0
    assert "price of h100-80-sxm" in shown["price_source"]
    assert any("mercatus" in source for source in shown["sources"])
    assert "devices_per_node: 8" in invoke("hardware", "show", "h100")


def test_a_name_of_both_a_device_and_a_cluster_type_shows_both() -> None:
    assert json.loads(invoke("hardware", "show", "gb200-nvl72", "--json"))["vendor"] == "nvidia"
    text = invoke("hardware", "show", "gb200-nvl72")
    assert "vendor: nvidia" in text
    assert "devices_per_node: 4" in text


def test_help_and_import_load_nothing_heavy() -> None:
    """`--help` and `import planner` answer at once because they import no heavy library."""
    script = (
        "import sys, planner; from planner.cli.main import app\n"
        "heavy = {'numpy', 'ortools', 'networkx', 'optuna', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_version() -> None:
    import planner

    assert process("--version").stdout.strip() == f"rlmplan {planner.__version__}"


def test_analyze_reads_a_problem_and_a_plan_file_alike(tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    plans.write_text(invoke(*SMALL, "--json"))
    text = invoke("analyze", str(plans))
    assert "of the lower bounds below" in text
    assert "no step is shorter than" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    report = json.loads(invoke("analyze", str(plans), "--json"))
    best = PlanSet.model_validate_json(plans.read_text()).plans[0]
    assert report["step_time_s"] == pytest.approx(best.step_time_s)
    result = process("analyze", str(plans), "--rank", "99")
    assert result.returncode == 2
    assert "no plan of rank 99" in result.stderr


def test_pareto_prints_a_front_and_json(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(
        "algorithm: grpo\nmodels: {actor: Qwen/Qwen2.5-7B}\ncluster: h100:2x8\n"
        "batch: {prompts: 64, samples: 8}\nresponse: {mean: 800, max: 2048}\nspace: verl-fsdp\n"
    )
    front = json.loads(invoke("pareto", str(path), "--sizes", "8,16", "--json"))
    assert [point["size"] for point in front["points"]] == [[8], [16]]
    text = invoke("pareto", str(path), "--sizes", "8, 16")
    assert "Knee" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    for sizes in ("8;16", "x", "9", "24", ""):
        result = CliRunner().invoke(app, ["pareto", str(path), "--sizes", sizes])
        assert isinstance(result.exception, PlannerError), sizes
        assert "izes" in str(result.exception)


def test_pareto_and_analyze_take_a_preset() -> None:
    front = json.loads(invoke("pareto", "--preset", "grpo", "--sizes", "1", "--json"))
    assert [point["size"] for point in front["points"]] == [[1]]
    report = json.loads(invoke("analyze", "--preset", "grpo", "--json"))
    plans = json.loads(invoke("plan", "--preset", "grpo", "--json"))
    assert report["step_time_s"] == pytest.approx(plans["plans"][0]["step_time_s"])


def test_objective_and_limits_come_from_file_and_options(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(
        "algorithm: grpo\nmodels: {actor: Qwen/Qwen2.5-7B}\ncluster: h100:2x8\n"
        "batch: {prompts: 64, samples: 8}\nresponse: {mean: 800, max: 2048}\nspace: verl-fsdp\n"
        "objective: cost_to_tokens\ntokens: 1.0e+9\nlimits: {devices: 8}\ntop: 1\n"
    )
    found = json.loads(invoke("plan", str(path), "--json"))
    assert found["objective"] == "cost_to_tokens"
    assert found["limits"]["devices"] == 8
    assert found["plans"][0]["devices"] <= 8
    text = invoke("plan", str(path), "--max-step-time", "200", "--max-devices", "16")
    assert "ranked by cost to tokens (1 B tokens)" in text
    assert "at most 16 devices and steps of at most 200 s" in text
    result = CliRunner().invoke(app, ["plan", str(path), "--max-devices", "-1"])
    assert isinstance(result.exception, PlannerError)
    assert str(result.exception).startswith("--max-devices")


def test_schemas_of_the_files_that_users_write() -> None:
    names = invoke("schema").split()
    assert {"PlanSet", "ParetoFront", "Replan", "ProblemFile", "ClusterFile"} <= set(names)
    for name in names:
        assert json.loads(invoke("schema", name))["title"] == name
    problem = json.loads(invoke("schema", "ProblemFile"))["properties"]
    assert {"algorithm", "models", "cluster", "objective", "tokens", "limits"} <= set(problem)
