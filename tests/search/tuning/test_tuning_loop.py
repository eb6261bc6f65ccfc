"""The measured search: figures, failures, budgets, resumption, shared studies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tuning_problem import TUNER, plans, ran, task

from planner.errors import InputError
from planner.search.tuning.loop import Budget, tune
from planner.search.tuning.study import masked, open_storage


def test_measurements_correct_the_next_prediction(tmp_path: Path) -> None:
    found = tune(plans(), task(tmp_path), Budget(trials=3), storage=str(tmp_path / "study.db"))
    first, *later = found.trials
    assert [each.status for each in found.trials] == ["ok"] * 3
    assert first.step_s is not None
    assert first.predicted_step_s == pytest.approx(first.analytic_step_s, rel=1e-6)
    assert first.step_s > 1.05 * first.analytic_step_s
    for each in later:
        assert each.predicted_step_s == pytest.approx(each.step_s, rel=0.03)
        assert each.peak_memory_bytes == 40 * 2**30
    assert found.factors["generate"] == pytest.approx(1.5, rel=0.1)
    assert found.step_s == min(each.step_s or 0.0 for each in found.trials)
    assert len(set(ran(tmp_path))) == 3
    # A dashboard reads the study without the planner.
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path}/study.db")
    assert len(study.trials) >= 3
    assert study.best_trial.user_attrs["stages_s"]["generate"] > 0


def test_failures_are_observations_and_memory_is_not_tried_again(tmp_path: Path) -> None:
    found = tune(
        plans(), task(tmp_path, "memory"), Budget(trials=4), storage=str(tmp_path / "study.log")
    )
    statuses = [each.status for each in found.trials]
    assert set(statuses) <= {"ok", "out of memory"}
    fractions = [
        each.settings["generate.memory_fraction"]
        for each in found.trials
        if each.status == "out of memory"
    ]
    # As much memory as ran out is not asked for again.
    assert fractions == sorted(fractions, reverse=True)
    assert len(set(ran(tmp_path))) == len(ran(tmp_path)) == 4


@pytest.mark.slow
def test_crashes_and_time_limits_leave_the_rest_alone(tmp_path: Path) -> None:
    found = tune(
        plans(), task(tmp_path, "fails"), Budget(trials=6), storage=str(tmp_path / "study.db")
    )
    assert {each.status for each in found.trials} <= {"ok", "crash"}
    assert all("unlucky" in each.message for each in found.trials if each.status == "crash")
    slow = tune(
        plans(),
        task(tmp_path / "slow", "slow", timeout_s=0.05),
        Budget(trials=2),
        storage=str(tmp_path / "slow.db"),
    )
    assert [each.status for each in slow.trials] == ["timeout", "timeout"]
    assert slow.plan is None


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    storage = str(tmp_path / "study.db")
    first = tune(plans(), task(tmp_path), Budget(trials=2), storage=storage)
    again = tune(plans(), task(tmp_path), Budget(trials=2), storage=storage)
    assert len(ran(tmp_path)) == 2
    assert again.trials == first.trials
    assert len(tune(plans(), task(tmp_path), Budget(trials=3), storage=storage).trials) == 3
    assert len(ran(tmp_path)) == 3


@pytest.mark.slow
def test_budgets_of_device_hours_and_money(tmp_path: Path) -> None:
    hours = tune(plans(), task(tmp_path), Budget(device_hours=1e-6), storage=str(tmp_path / "a.db"))
    assert len(hours.trials) == 1
    assert "device-hours" in hours.ended
    money = tune(plans(), task(tmp_path), Budget(cost_usd=1e-9), storage=str(tmp_path / "b.db"))
    assert len(money.trials) == 1
    assert money.ended.startswith("$")
    with pytest.raises(InputError, match="budget"):
        tune(plans(), task(tmp_path), Budget(), storage=str(tmp_path / "c.db"))


def test_another_problem_is_refused(tmp_path: Path) -> None:
    storage = str(tmp_path / "study.db")
    tune(plans(), task(tmp_path), Budget(trials=1), storage=storage)
    workload = plans().workload.model_copy(update={"prompts_per_step": 32})
    other = plans().model_copy(update={"workload": workload})
    with pytest.raises(InputError, match="another workload"):
        tune(other, task(tmp_path), Budget(trials=2), storage=storage)


@pytest.mark.slow
def test_settings_that_the_launcher_refuses_are_not_run(tmp_path: Path) -> None:
    from dataclasses import replace

    def refuse(plan: object) -> list[str]:
        assignment = plan.assignment  # type: ignore[attr-defined]
        odd = assignment.strategies["generate"].max_running_sequences % 3 == 0
        return ["no multiple of three"] if odd else []

    picky = replace(task(tmp_path), refuse=refuse)
    found = tune(plans(), picky, Budget(trials=5), storage=str(tmp_path / "study.db"))
    assert len(found.trials) == 5
    assert not any(
        int(each.settings["generate.max_running_sequences"]) % 3 == 0 for each in found.trials
    )


def share(storages: list[str], folder: Path, trials: int) -> None:
    with ThreadPoolExecutor(len(storages)) as pool:
        runs = [
            pool.submit(tune, plans(), task(folder, "slow"), Budget(trials=trials), storage=each)
            for each in storages
        ]
        for run in runs:
            run.result()


def test_two_tuners_share_one_storage(tmp_path: Path) -> None:
    storage = str(tmp_path / "study.db")
    tune(plans(), task(tmp_path, "slow"), Budget(trials=1), storage=storage)
    share([storage, storage], tmp_path, 4)
    assert 4 <= len(ran(tmp_path)) <= 5
    assert len(set(ran(tmp_path))) == len(ran(tmp_path))


def tuner(folder: Path, trials: int, storage: str) -> subprocess.Popen[str]:
    (folder / "plans.json").write_text(plans().model_dump_json())
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            TUNER,
            str(Path(__file__).parent),
            str(folder),
            str(trials),
            storage,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("after_s", [0.6, pytest.param(1.3, marks=pytest.mark.slow)])
def test_killed_it_loses_no_finished_trial_and_repeats_none(tmp_path: Path, after_s: float) -> None:
    storage = str(tmp_path / "study.db")
    process = tuner(tmp_path, 3, storage)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = [folder for folder in (tmp_path / "trials").glob("*") if (folder / "exit").exists()]
    found = tune(plans(), task(tmp_path, "slow"), Budget(trials=3), storage=storage)
    assert [each.status for each in found.trials] == ["ok"] * 3
    assert len(set(ran(tmp_path))) == len(ran(tmp_path)) == 3
    numbers = {each.number for each in found.trials}
    assert {int(folder.name.removeprefix("trial-")) for folder in done} <= numbers


@pytest.mark.parametrize("written", [(), ("folder",), ("folder", "alive_at")])
def test_a_tuner_that_died_before_its_job_began_leaves_nothing_behind(
    tmp_path: Path, written: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.search.tuning import ledger

    storage = str(tmp_path / "study.db")
    tune(plans(), task(tmp_path), Budget(trials=1), storage=storage)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{storage}")
    first = study.trials[0]
    study.enqueue_trial(first.params | {"generate.max_running_sequences": 64})
    half = study.ask({name: first.distributions[name] for name in first.params})
    values = {"folder": str(tmp_path / "trials" / "trial-9999"), "alive_at": time.time() - 99}
    for name in written:
        half.set_user_attr(name, values[name])
    monkeypatch.setattr(ledger, "_UNBORN_S", 0.0)
    found = tune(plans(), task(tmp_path), Budget(trials=2), storage=storage)
    # What was asked for is run, under another number.
    assert [each.status for each in found.trials] == ["ok", "ok"]
    assert found.trials[1].settings["generate.max_running_sequences"] == 64
    assert half.number not in {each.number for each in found.trials}


def test_passwords_of_storages_are_not_shown() -> None:
    url = "postgresql+psycopg://me:s3cret/@nowhere.invalid:1/db"
    assert masked("postgresql://me:s3cret@host/db") == "postgresql://me:***@host/db"
    for address in (url, "postgresql+psycopg2://me:s3cret@nowhere.invalid:1/db", "x://me:s3cret@h"):
        with pytest.raises(InputError) as error:
            open_storage(address)
        assert "s3cret" not in str(error.value)


@pytest.fixture
def postgresql(tmp_path: Path) -> object:
    """A server of its own on a socket in a temporary folder."""
    pytest.importorskip("psycopg", reason="needs psycopg (rlmplan[postgresql])")
    initdb = shutil.which("initdb")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = Path(initdb) if initdb else (candidates[-1] if candidates else None)
    if found is None:
        pytest.skip("no PostgreSQL server is installed")
    bin_folder, data = found.resolve().parent, tmp_path / "data"
    as_user: dict[str, object] = {}
    if os.getuid() == 0:
        import pwd

        # The server refuses to run as root.
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        folder = tmp_path
        while folder != Path("/tmp") and folder != folder.parent:
            folder.chmod(0o755)
            folder = folder.parent
        data.mkdir()
        os.chown(data, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "cwd": data}

    def run(*words: str) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **as_user)  # type: ignore[call-overload]

    run(str(bin_folder / "initdb"), "-D", f"{data}/pg", "-U", "me", "-A", "trust")
    options = f"-c listen_addresses='' -c unix_socket_directories='{data}' -c fsync=off"
    run(
        str(bin_folder / "pg_ctl"),
        "-D",
        f"{data}/pg",
        "-l",
        f"{data}/log",
        "-o",
        options,
        "-w",
        "start",
    )
    yield f"postgresql+psycopg://me:s3cret@/postgres?host={data}"
    run(str(bin_folder / "pg_ctl"), "-D", f"{data}/pg", "-m", "immediate", "stop")


@pytest.mark.slow
def test_two_tuners_on_postgresql(tmp_path: Path, postgresql: str) -> None:
    tune(plans(), task(tmp_path, "slow"), Budget(trials=1), storage=postgresql)
    share([postgresql, postgresql], tmp_path, 5)
    assert 5 <= len(ran(tmp_path)) <= 6
    assert len(set(ran(tmp_path))) == len(ran(tmp_path))
    found = tune(plans(), task(tmp_path, "slow"), Budget(trials=5), storage=postgresql)
    assert len([each for each in found.trials if each.status == "ok"]) >= 5
