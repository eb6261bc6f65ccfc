"""Every command that README and docs show runs, in the order of the page, with the exit code that
the page says (`exit=` of its code block; 0 where it says nothing)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from planner.launchers import launcher_names

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/grpo-qwen3-30b-a3b-4x8-h100.yaml"
SMALL = "examples/grpo-qwen2.5-7b-1x8-h100.yaml"
# What stands for a file of the reader's.
STANDS_FOR = {"FILE": EXAMPLE}
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="(?P<name>[\w.-]+\.yaml)"')
TIMEOUT_S = 300


@dataclass(frozen=True)
class Command:
    text: str
    code: int


def commands(page: Path) -> list[Command]:
    found = []
    for block in FENCE.finditer(page.read_text()):
        info = block["info"].split()
        if info and info[0] not in ("sh", "bash", "console"):
            continue
        code = next((int(word[5:]) for word in info if word.startswith("exit=")), 0)
        body = block["body"].replace("\\\n", " ")
        for line in body.splitlines():
            text = line.strip().removeprefix("$ ")
            if text.startswith("rlmplan "):
                found.append(Command(text, code))
    return found


WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder: the repository's examples and cases, and the tutorial's problem."""
    for name in ("examples", "tests", "docs", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / SMALL, tmp_path / "first.yaml")
    shutil.copy(ROOT / EXAMPLE, tmp_path / "problem.yaml")
    binary = tmp_path / "bin"
    binary.mkdir()
    script = binary / "rlmplan"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m planner.cli.main "$@"\n')
    script.chmod(0o755)
    return tmp_path


def _run(text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_run(page: Path, folder: Path) -> None:
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    if page.name not in ("README.md", "tutorial.md"):
        # Other pages speak of plans that are there.
        made = _run(f"rlmplan plan {EXAMPLE} --output out --details 0", folder, environment)
        assert made.returncode == 0, made.stderr
        shutil.copy(folder / "out" / "plans.json", folder / "plans.json")
    for block in FENCE.finditer(page.read_text()):
        titled = TITLE.search(block["info"])
        if titled is not None:  # a file that the page has the reader write
            (folder / titled["name"]).write_text(block["body"])
    for command in commands(page):
        text = " ".join(STANDS_FOR.get(word, word) for word in command.text.split(" "))
        done = _run(text, folder, environment)
        assert done.returncode == command.code, f"{text}\n{done.stdout}\n{done.stderr}"
    if page.name.startswith("howto-"):
        _check_launcher_page(page, folder, environment)


def _check_launcher_page(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """The files that the page names are those that its commands wrote, and all of them; the value
    that it gives to `check --set` is one that can be given."""
    text = page.read_text()
    name = page.stem.removeprefix("howto-")
    written = folder / f"out-{name}" / "plan-1" / name
    paths = re.findall(r"\bout\S*?/[\w./-]+\w", text)
    assert any(path.endswith(".sh") for path in paths)
    for path in paths:
        assert (folder / path).exists(), path
    for file in written.iterdir():
        assert f"`{file.name}`" in text
    checked = next(each.text for each in commands(page) if each.text.startswith("rlmplan check"))
    (setting,) = re.findall(r"--set '[^']*'", text)
    done = _run(f"{checked} {setting}", folder, environment)
    assert done.returncode in (0, 1), done.stderr  # 1: it will not run; a wrong setting is 2


def test_the_tutorial_s_problem_is_the_one_that_it_shows() -> None:
    import yaml

    shown = next(
        block["body"]
        for block in FENCE.finditer((ROOT / "docs" / "tutorial.md").read_text())
        if "first.yaml" in block["info"]
    )
    real = yaml.safe_load((ROOT / SMALL).read_text())
    assert yaml.safe_load(shown) == {k: v for k, v in real.items() if k != "environment"}


def test_pages_have_commands() -> None:
    launchers = {f"howto-{name}.md" for name in launcher_names()}
    assert {"README.md", "tutorial.md", *launchers} <= {page.name for page in WITH_COMMANDS}
