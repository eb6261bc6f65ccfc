"""The commands, in process and as a real process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.files import write_files
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


def test_export_writes_the_files_of_one_plan(plans_file: Path, tmp_path: Path) -> None:
    printed = invoke("export", str(plans_file), "--to", "verl", "-o", str(tmp_path / "x"))
    assert sorted(Path(line).name for line in printed.splitlines()) == sorted(
        path.name for path in (tmp_path / "x").iterdir()
    )


def test_export_to_a_launcher_that_cannot_run_the_plan_says_why(plans_file: Path) -> None:
    result = process("export", str(plans_file), "--to", "nemo-rl", "-o", "unused")
    assert result.returncode == 2
    assert "nemo-rl cannot run plan 1" in result.stderr
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
        ([*SMALL, "--actor", "meta-llama/Llama-3.1-405B"], 3, ["no plan fits", "GiB"]),
        (["export", "absent.json", "--to", "verl"], 2, ["absent.json"]),
        (["schema", "Plann"], 2, ["Did you mean Plan?"]),
        (["models", "show", "nobody/nothing"], 2, ["nobody/nothing"]),
        (["hardware", "show", "h100-80-sx"], 2, ["h100-80-sx"]),
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


def test_an_output_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = process(*SMALL, "--output", str(tmp_path / "file" / "out"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


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


def test_help_and_import_load_nothing_heavy() -> None:
    """`--help` and `import planner` answer at once because they import no heavy library."""
    script = (
        "import sys, planner; from planner.cli.main import app\n"
        "heavy = {'numpy', 'ortools', 'networkx', 'optuna', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_set_of_files_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    real = Path.write_text

    def full_disk(path: Path, *arguments: str, **options: str) -> int:
        if len(written) == 1:
            raise OSError(28, "No space left on device")
        written.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_files(tmp_path / "out", {"a": "1", "b/c": "2"})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_file_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leaves the output folder"):
        write_files(tmp_path / "out", {"../evil": "1"})
    assert not list(tmp_path.iterdir())


def test_version() -> None:
    import planner

    assert process("--version").stdout.strip() == f"rlmplan {planner.__version__}"
