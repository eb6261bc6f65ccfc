"""Jobs of a user's command: quoting, outcomes, time limits, and results that outlive a tuner."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.launchers.logs import read_log
from planner.search.tuning.job import Job, fill
from planner.search.tuning.measured import Measured

STEP = "echo '{\"step_time_s\": %s}'; "


def run(folder: Path, command: str, timeout_s: float = 20.0) -> Measured:
    folder.mkdir(exist_ok=True)
    job = Job(folder)
    in_time = job.wait(timeout_s, process=job.start(command))
    return job.outcome(read_log, in_time=in_time)


def test_placeholders_are_filled_in_and_quoted() -> None:
    values = {"config": "/a b/$(touch x).yaml", "trial": "7"}
    assert fill("run {config} {trial} ${HOME} {print $1}", values) == (
        "run '/a b/$(touch x).yaml' 7 ${HOME} {print $1}"
    )


@given(st.text(st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",))))
def test_whatever_a_name_holds_it_stays_one_word(name: str) -> None:
    assert shlex.split(fill("cat {config} end", {"config": name})) == ["cat", name, "end"]


@pytest.mark.parametrize(
    "command", ["sh -c 'cat {config}'", 'cat "{config}"', 'echo "it\'s {config}"']
)
def test_inside_quotes_only_plain_names_go(command: str) -> None:
    assert "/plain/x.yaml" in fill(command, {"config": "/plain/x.yaml"})
    with pytest.raises(InputError, match="inside quotes"):
        fill(command, {"config": "/a/$(touch x).yaml"})


def test_a_placeholder_that_the_launcher_lacks_is_named() -> None:
    with pytest.raises(InputError, match=r"\{script\} does not exist"):
        fill("bash {script}", {"config": "x", "dir": "y"})


def test_the_first_step_warms_up(tmp_path: Path) -> None:
    found = run(tmp_path, "".join(STEP % each for each in (90, 10, 12)))
    assert (found.status, found.step_s, found.steps) == ("ok", 11.0, 2)
    assert found.spread == pytest.approx(2**0.5 / 11)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("echo hello", "no figure"),
        (STEP % 5 + "exit 3", "crash"),
        ("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1", "out of memory"),
        ("kill -9 $$", "crash"),
        (STEP % 5, "ok"),
    ],
)
def test_outcomes(tmp_path: Path, command: str, status: str) -> None:
    assert run(tmp_path, command).status == status


def test_a_job_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    begin = time.monotonic()
    found = run(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait", timeout_s=0.5)
    assert found.status == "timeout"
    assert time.monotonic() - begin < 15
    child = int((tmp_path / "child").read_text())
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_steps_seen_before_the_time_limit_count(tmp_path: Path) -> None:
    found = run(tmp_path, STEP % 9 + STEP % 5 + "sleep 60", timeout_s=1.0)
    assert (found.status, found.step_s) == ("ok", 5.0)


def test_a_job_outlives_who_started_it(tmp_path: Path) -> None:
    starter = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from planner.search.tuning.job import Job\n"
        "Job(Path(sys.argv[1])).start(sys.argv[2])\n"
        "print('started', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path), "sleep 1; " + STEP % 4],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    job = Job(tmp_path)
    assert job.wait(20.0)
    assert job.outcome(read_log).step_s == 4.0
    assert not job.alive()
