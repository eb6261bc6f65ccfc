"""Write docs/accuracy.md: predictions against measured cases, and the same with groups left out.

Usage: python tools/accuracy.py CASES... [--output FILE] [--no-fit]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import statistics
from pathlib import Path

from planner import __version__
from planner.catalog.frameworks import list_frameworks, load_framework, profile_path
from planner.errors import InputError
from planner.measure import training_cases
from planner.measure.case_files import case_files, load_cases
from planner.measure.fit import Fitted, fit
from planner.measure.scores import VERDICTS, Summary
from planner.measure.validation import Validation, validate

ROOT = Path(__file__).parent.parent
# Profiles that share cases or constants are fitted together.
FAMILIES = (
    ("megatron-deepspeed-2022",),
    ("megatron-lm-2022",),
    (
        "megatron-bridge",
        "megatron-bridge-26.04",
        "megatron-bridge-25.11-grace",
        "megatron-bridge-26.06-grace",
    ),
    ("llm-foundry-ampere", "llm-foundry-hopper"),
    ("internevo",),
    ("torchtitan", "torchtitan-eager"),
    ("prime-rl", "prime-rl-flash2"),
)
HASH_LENGTH = 12


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "accuracy.md")
    parser.add_argument("--no-fit", action="store_true", help="leave the left-out table out")
    options = parser.parse_args()
    result = validate(options.cases)
    parts = [_head(), _files(result), _groups(result)]
    if not options.no_fit:
        parts += [_left_out(options.cases), _as_unknown(options.cases)]
    parts.append(_profiles(result))
    options.output.write_text("\n".join(parts), encoding="utf-8")


def _head() -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        "# Accuracy\n\n"
        f"Written by `make accuracy` on {date} with version {__version__}; do not edit.\n\n"
        "Each measured case is predicted with the strategy that ran, no search, and compared.\n"
        "Error = |predicted / measured - 1|. Tau (Kendall) and regret are means over groups of at\n"
        "least three cases that differ only in strategy; regret is the measured time of the\n"
        "strategy that is ranked first over the measured best, minus 1. Flagged cases (doubtful\n"
        "measurements) are apart; a configuration that newer software measured again counts once.\n"
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _header(*names: str) -> list[str]:
    return [_row(*names), _row(*["---"] * len(names))]


_FIGURES = ("n", "mean %", "median %", "p90 %", "bias %", "tau", "regret %")


def _figures(metric: str, one: Summary) -> list[str]:
    if metric in VERDICTS:
        right = "" if one.mape is None else f"{100 * (1 - one.mape):.1f} right"
        return [str(one.n), right, "", "", "", "", ""]

    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f}"

    tau = "" if one.kendall_tau is None else f"{one.kendall_tau:.2f}"
    return [
        str(one.n),
        percent(one.mape),
        percent(one.median_ape),
        percent(one.p90_ape),
        percent(one.bias),
        tau,
        percent(one.top1_regret),
    ]


def _files(result: Validation) -> str:
    lines = ["## By file\n", *_header("file", "metric", *_FIGURES, "skipped")]
    flagged = result.flagged()
    for name, metrics in result.files().items():
        for metric, one in metrics.items():
            lines.append(_row(name, metric, *_figures(metric, one), str(one.skipped)))
        for metric, one in flagged.get(name, {}).items():
            lines.append(_row(name, f"{metric}, flagged", *_figures(metric, one), ""))
    return "\n".join(lines) + "\n"


def _groups(result: Validation) -> str:
    lines = ["## By source, model and device\n"]
    for name, members in result.groups().items():
        if members:
            lines += [f"### {name}\n", *_header("group", "metric", *_FIGURES)]
            for group, metrics in members.items():
                lines += [_row(group, m, *_figures(m, one)) for m, one in metrics.items()]
            lines.append("")
    return "\n".join(lines)


def _left_out(paths: list[Path]) -> str:
    names = ("profiles", "cases", "groups", "in sample %", "left out %", "80 % interval covers %")
    lines = [
        "## With whole groups left out\n",
        "Constants fitted without a group predict it (`rlmplan fit`), one group after another.\n",
        *_header(*names),
    ]
    total: list[Fitted] = []
    for family in FAMILIES:
        try:
            one = fit(paths, family, metric="step_time")
        except InputError:
            continue  # none of its cases were given
        total.append(one)
        lines.append(_fitted_row(", ".join(family), [one]))
    if total:
        lines.append(_fitted_row("all of them", total))
    return "\n".join(lines) + "\n"


def _fitted_row(name: str, ones: list[Fitted]) -> str:
    cases = sum(one.cases for one in ones)

    def mean(field: str) -> str:
        return f"{100 * sum(getattr(one, field) * one.cases for one in ones) / cases:.1f}"

    return _row(
        name,
        str(cases),
        str(sum(one.groups for one in ones)),
        mean("error_in_sample"),
        mean("error_left_out"),
        mean("coverage"),
    )


def _as_unknown(paths: list[Path]) -> str:
    """Training cases priced as software that nobody measured: a whole framework left out."""
    errors: dict[str, list[float]] = {}
    for path in case_files(paths):
        cases = [case for case in load_cases(path) or [] if training_cases.recognises(case)]
        old = training_cases.superseded(cases)
        for case in cases:
            if not case["complete"] or case["flag"] or case["id"] in old:
                continue
            setup = {**case["setup"], "framework": "software that nobody measured"}
            figure = training_cases.predict({**case, "setup": setup}).scores[0]
            name = case["setup"]["framework"]
            errors.setdefault(name, []).append(abs(figure.predicted / figure.measured - 1.0))
    lines = [
        "## With a whole framework left out\n",
        "Step times of training as if nobody had measured the framework: profile `generic`.\n",
        *_header("framework", "cases", "mean %", "median %"),
    ]
    for name, ones in sorted(errors.items()):
        figures = (100 * statistics.fmean(ones), 100 * statistics.median(ones))
        lines.append(_row(name, str(len(ones)), *(f"{figure:.1f}" for figure in figures)))
    return "\n".join(lines) + "\n"


def _profiles(result: Validation) -> str:
    used = {one.prediction.framework for one in result.outcomes if one.prediction is not None}
    lines = ["## Profiles\n", *_header("profile", "relative error", "sha256 of the file")]
    for name in sorted(used & set(list_frameworks())):
        digest = hashlib.sha256(profile_path(name).read_bytes()).hexdigest()[:HASH_LENGTH]
        lines.append(_row(name, f"{load_framework(name).relative_error:.3f}", f"`{digest}`"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
