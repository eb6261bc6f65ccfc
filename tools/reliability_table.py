"""Write the table of docs/reliability.md: kinds of bad input, and what each really gets.

Usage: python tools/reliability_table.py [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import PlannerError

ROOT = Path(__file__).parent.parent
START = "<!-- table -->"
END = "<!-- end of table -->"
GOOD = """\
algorithm: grpo
models: {actor: Qwen/Qwen2.5-1.5B}
cluster: h100:1x8
batch: {prompts: 32, samples: 4}
prompt: {mean: 100, max: 512}
response: {mean: 400, max: 2048}
"""
CONFIG = (
    '{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, '
    '"num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 8192, '
    '"vocab_size": 32000, "max_position_embeddings": 8192}'
)


@dataclass(frozen=True)
class Kind:
    """A kind of bad input: how it is made in a folder, and the command that gets it."""

    what: str
    make: Callable[[Path], list[str]]


@dataclass(frozen=True)
class Outcome:
    """What the command answered."""

    code: int
    message: str


def _problem(*changes: tuple[str, str], tail: str = "") -> Callable[[Path], list[str]]:
    """`rlmplan plan` of a good problem with texts replaced and a tail appended."""

    def make(folder: Path) -> list[str]:
        text = GOOD
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        (folder / "p.yaml").write_text(text + tail, encoding="utf-8")
        return ["plan", "p.yaml"]

    return make


def _bytes(content: Callable[[], bytes]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "p.yaml").write_bytes(content())
        return ["plan", "p.yaml"]

    return make


def _model(old: str, new: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        assert old in CONFIG, old
        (folder / "config.json").write_text(CONFIG.replace(old, new, 1))
        (folder / "p.yaml").write_text(GOOD.replace("Qwen/Qwen2.5-1.5B", "config.json"))
        return ["plan", "p.yaml"]

    return make


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join(lines).encode()


def _link_loop(folder: Path) -> list[str]:
    (folder / "p.yaml").symlink_to("q.yaml")
    (folder / "q.yaml").symlink_to("p.yaml")
    return ["plan", "p.yaml"]


def _read_only(folder: Path) -> list[str]:
    (folder / "p.yaml").write_text(GOOD)
    # Root may write anywhere, but nobody below a file.
    (folder / "out").write_text("")
    return ["plan", "p.yaml", "--output", "out/below"]


def _plans(folder: Path) -> list[str]:
    (folder / "plans.json").write_text('{"plans": [')
    return ["export", "plans.json", "--rank", "1", "--to", "verl", "--output", "o"]


KINDS = (
    Kind("a key is missing", _problem(("models: {actor: Qwen/Qwen2.5-1.5B}\n", ""))),
    Kind("a key is misspelt", _problem(("samples", "sampels"))),
    Kind("a value has the wrong type", _problem(("prompts: 32", "prompts: many"))),
    Kind("not a number", _problem(("mean: 400", "mean: .nan"))),
    Kind("infinity", _problem(("mean: 400", "mean: .inf"))),
    Kind("negative", _problem(("prompts: 32", "prompts: -32"))),
    Kind("zero", _problem(("samples: 4", "samples: 0"))),
    Kind("huge", _problem(("max: 2048", "max: 1" + "0" * 30))),
    Kind("a mean above its limit", _problem(("mean: 400", "mean: 4000"))),
    Kind("a group of one with GRPO", _problem(("samples: 4", "samples: 1"))),
    Kind("heads that do not divide", _model('value_heads": 8', 'value_heads": 7')),
    Kind("an unknown architecture", _model('"llama"', '"lama"')),
    Kind("a layer count of zero", _model('"num_hidden_layers": 16', '"num_hidden_layers": 0')),
    Kind("an unknown model", _problem(("Qwen2.5-1.5B", "Qwen2.5-1.5X"))),
    Kind("an unknown device", _problem(("h100:1x8", "h1000:1x8"))),
    Kind("an empty cluster", _problem(("h100:1x8", "{groups: []}"))),
    Kind("a cluster of no nodes", _problem(("h100:1x8", "h100:0x8"))),
    Kind("a key twice", _problem(tail="algorithm: ppo\n")),
    Kind("an unknown algorithm", _problem(("grpo", "grop"))),
    Kind(
        "a role that the algorithm has no use for",
        _problem(("{actor", "{teacher: Qwen/Qwen2.5-0.5B, actor")),
    ),
    Kind("a limit that nothing keeps", _problem(tail="limits: {step_time_s: 0.001}\n")),
    Kind("a model that fits nowhere", _problem(("Qwen/Qwen2.5-1.5B", "deepseek-ai/DeepSeek-V3"))),
    Kind("not UTF-8", _bytes(lambda: b"algorithm: \xff\xfe\xfa")),
    Kind("an empty file", _bytes(lambda: b"")),
    Kind("not YAML", _bytes(lambda: b"a: [1, 2")),
    Kind("50 MB", _bytes(lambda: b"a: " + b"x" * 50_000_000)),
    Kind("a YAML bomb", _bytes(_bomb)),
    Kind("nested 10,000 deep", _bytes(lambda: b"[" * 10_000)),
    Kind("a tag that would run code", _bytes(lambda: b"a: !!python/object/apply:os.system [x]")),
    Kind("a file that is not there", lambda folder: ["plan", "p.yaml"]),
    Kind("a folder instead of a file", lambda folder: ["plan", "."]),
    Kind("links in a circle", _link_loop),
    Kind("a folder that cannot be made", _read_only),
    Kind("half a plans file", _plans),
    Kind("an unknown launcher", _problem(("algorithm", "algorithm"))),
)  # fmt: skip


def outcome(kind: Kind) -> Outcome:
    """Run the kind's command in a folder of its own; a traceback is an AssertionError."""
    back = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = kind.make(folder)
        if kind.what == "an unknown launcher":
            arguments += ["--launcher", "verll"]
        before = sorted(folder.iterdir())
        os.chdir(folder)
        try:
            result = CliRunner().invoke(app, arguments)
        finally:
            os.chdir(back)
        assert sorted(folder.iterdir()) == before, f"{kind.what}: something was left behind"
    error = result.exception
    if isinstance(error, PlannerError):
        return Outcome(error.exit_code, str(error))
    assert error is None or isinstance(error, SystemExit), f"{kind.what}: {error!r}"
    text = " ".join(result.stderr.replace("│", " ").split())
    return Outcome(result.exit_code, text.split("Error ─")[-1].strip("─╮╭╯╰ "))


def table() -> str:
    """The table in Markdown."""
    rows = ["| input | exit code | message |", "| --- | --- | --- |"]
    for kind in KINDS:
        found = outcome(kind)
        message = found.message.replace("|", "\\|").replace("\n", " ")
        # Lists of what is known grow; the page need not follow them.
        message = message.replace(str(Path.home()), "~").split(" Known:")[0]
        short = message if len(message) <= 260 else message[:260].rsplit(" ", 1)[0] + " ..."
        rows.append(f"| {kind.what} | {found.code} | {short} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "reliability.md")
    options = parser.parse_args(arguments)
    page = options.output.read_text(encoding="utf-8")
    before, rest = page.split(START)
    after = rest.split(END)[1]
    options.output.write_text(f"{before}{START}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
