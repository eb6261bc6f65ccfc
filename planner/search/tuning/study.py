"""Optuna's part: storages, samplers by name, and the pruning of trials by cheaper answers."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from planner.errors import InputError

SAMPLERS = ("model", "tpe", "gp", "random")
CONSTRAINTS = "constraints"
"""User attribute: amounts by which limits are exceeded; at most zero where they hold."""
_STARTUP = 10
_SECRET = re.compile(r"(?<=://)([^/@\s:]*):([^@\s]*)@")


def masked(url: str) -> str:
    """A storage's address without its password."""
    return _SECRET.sub(r"\1:***@", url)


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without log lines and without warnings of experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def open_storage(address: str) -> BaseStorage:
    """A storage: an RDB URL, or the name of a file: SQLite (.db, .sqlite) or a journal (else).

    Raises InputError, which never shows a password, when it cannot be opened.
    """
    where = f"--storage {masked(address)}"
    remedy = "Give a file's name, or an URL such as postgresql+psycopg://USER@HOST/DATABASE"
    if not address.strip():
        raise InputError("is empty", where="--storage", remedy=remedy)
    try:
        if "://" in address:
            return optuna.storages.RDBStorage(address, engine_kwargs=_engine(address))
        path = Path(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".db", ".sqlite", ".sqlite3"):
            return _sqlite(f"sqlite:///{path}")
        from optuna.storages.journal import JournalFileBackend

        return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    except ImportError as error:
        name = masked(str(error.name or error))
        raise InputError(
            f"needs the Python package {name}",
            where=where,
            remedy="Install the driver, for PostgreSQL: pip install 'rlmplan[postgresql]'",
        ) from None
    except Exception as error:
        # Drivers put the whole URL into their messages, so only the kind of error is shown.
        raise InputError(
            f"cannot be opened ({type(error).__name__}: {_first_line(error, address)})",
            where=where,
            remedy=remedy,
        ) from None


def _sqlite(url: str) -> BaseStorage:
    """A file that another process may be creating at the same moment: its tables are then there at
    a second look."""
    from sqlalchemy.exc import IntegrityError, OperationalError

    for wait_s in (0.2, 0.5, 1.0, 2.0):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=_engine(url))
        except (IntegrityError, OperationalError):
            time.sleep(wait_s)
    return optuna.storages.RDBStorage(url, engine_kwargs=_engine(url))


def _engine(url: str) -> dict[str, Any]:
    # A second process may hold SQLite's lock for a moment.
    return (
        {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    )


def _first_line(error: Exception, address: str) -> str:
    text = masked((str(error).splitlines() or [""])[0])
    found = _SECRET.search(address)
    return text.replace(found.group(2), "***") if found and found.group(2) else text


def make_sampler(
    name: str, *, seed: int, trials: int, model: Callable[[], BaseSampler]
) -> BaseSampler:
    """A sampler by name; `model` makes the one that knows the cost model.

    Raises InputError for an unknown name, and for "gp" without scipy and torch.
    """
    startup = max(1, min(_STARTUP, trials // 3))
    if name == "model":
        return model()
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=startup,
            multivariate=True,
            constraints_func=constraints_of,
        )
    if name == "gp":
        missing = [each for each in ("scipy", "torch") if find_spec(each) is None]
        if missing:
            raise InputError(
                f"the sampler gp needs {' and '.join(missing)}",
                where="--sampler",
                remedy="pip install 'rlmplan[gp]', or use --sampler model or tpe",
            )
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=startup, constraints_func=constraints_of
        )
    raise InputError(
        f"unknown sampler {name!r}", where="--sampler", remedy=f"Known: {', '.join(SAMPLERS)}"
    )


def constraints_of(trial: FrozenTrial) -> Sequence[float]:
    """What Optuna's samplers take as constraints."""
    return tuple(trial.user_attrs.get(CONSTRAINTS, (0.0,)))


def feasible(trial: FrozenTrial) -> bool:
    """Whether all constraints hold."""
    return all(value <= 0 for value in constraints_of(trial))


class FidelityPruner(BasePruner):
    """Ends a trial when an answer cheaper than the objective is far above the best's.

    Trials report one value for each fidelity (step 0: analytic, 1: a short simulation, ...);
    `margins` says how much worse than the best finished trial's at the same fidelity it may be:
    as much as the two fidelities differ at most.
    """

    def __init__(self, margins: Mapping[int, float]) -> None:
        self.margins = dict(margins)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the last report is hopeless."""
        step = trial.last_step
        if step is None or step not in self.margins:
            return False
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        others = [
            each.intermediate_values[step]
            for each in finished
            if step in each.intermediate_values and feasible(each)
        ]
        if not others:
            return False
        return bool(trial.intermediate_values[step] > min(others) * (1.0 + self.margins[step]))
