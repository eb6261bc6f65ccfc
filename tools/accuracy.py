"""Write docs/accuracy.md: predictions against measured cases, and the same with groups left out.

Usage: python tools/accuracy.py CASES... [--output FILE] [--no-fit] [--skip PROFILE]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import accuracy_left_out as left_out
from accuracy_notes import note

from planner import __version__
from planner.catalog.data import load_yaml
from planner.catalog.frameworks import list_frameworks, load_framework, profile_path
from planner.measure.case_files import case_files, load_cases
from planner.measure.fit import NORMAL_80
from planner.measure.scores import VERDICTS, Summary
from planner.measure.unknown import unknown_cases
from planner.measure.validation import Validation, validate

ROOT = Path(__file__).parent.parent
HASH_LENGTH = 12
WORST = 10
KERNEL_TARGETS = {"median": 0.05, "p90": 0.15}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "accuracy.md")
    parser.add_argument("--no-fit", action="store_true", help="leave the left-out tables out")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="PROFILE",
        help="do not refit the profiles that are fitted with this one; the page says so",
    )
    options = parser.parse_args(arguments)
    result = validate(options.cases)
    parts = [_head(), _inputs(options.cases), _files(result)]
    if not options.no_fit:
        runs = left_out.runs(options.cases, options.skip)
        parts += [_left_out(result, runs), _families(runs, options.skip), _widths(runs)]
        parts += [_frameworks_left_out(options.cases)]
    parts += [_kernels(), _worst(result), _groups(result), _profiles(result)]
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


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


_FIGURES = ("n", "mean %", "median %", "p90 %", "bias %", "tau", "regret %")


def _figures(metric: str, one: Summary) -> list[str]:
    if metric in VERDICTS:
        right = "" if one.mape is None else f"{100 * (1 - one.mape):.1f} right"
        return [str(one.n), right, "", "", "", "", ""]

    tau = "" if one.kendall_tau is None else f"{one.kendall_tau:.2f}"
    return [
        str(one.n),
        _percent(one.mape),
        _percent(one.median_ape),
        _percent(one.p90_ape),
        _percent(one.bias),
        tau,
        _percent(one.top1_regret),
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


def _inputs(paths: Sequence[Path]) -> str:
    lines = [
        "## Input\n",
        "The page is made from these files; every case of the collection is in the repository.\n",
        *_header("file", "cases", "complete, unflagged", "sha256"),
    ]
    for path in case_files(paths):
        cases = load_cases(path)
        if cases is not None:
            usable = sum(bool(one.get("complete", True)) and not one.get("flag") for one in cases)
            lines.append(_row(path.name, str(len(cases)), str(usable), f"`{digest(path)}`"))
    return "\n".join(lines) + "\n"


def digest(path: Path) -> str:
    """Start of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:HASH_LENGTH]


def _left_out(result: Validation, runs: Sequence[left_out.Run]) -> str:
    lines = [
        "## By file, with whole groups left out\n",
        "Constants fitted without a group (software, model, device) predict it, one group after\n"
        "another. Rows whose profile has nothing fitted are not in this table. Stages of RL steps\n"
        "are those of the rows whose step times are fitted.\n",
        *_header("file", "metric", *_FIGURES, "in sample, all rows: mean %"),
    ]
    inside = result.files()
    for name, metrics in left_out.by_file(runs).items():
        for metric, one in metrics.items():
            whole = inside.get(name, {}).get(metric)
            sample = "" if whole is None or metric in VERDICTS else _percent(whole.mape)
            lines.append(_row(name, metric, *_figures(metric, one), sample))
    return "\n".join(lines) + "\n"


def _families(runs: Sequence[left_out.Run], skipped: Sequence[str] = ()) -> str:
    names = ("kind", "profiles fitted together", "cases", "groups")
    lines = [
        "## By profile, with whole groups left out\n",
        "Coverage: left-out cases within the 80 % interval that the other groups' left-out errors\n"
        "give. Within one group alone, cases that differ in more than strategy are left out.\n",
        *_header(*names, "in sample %", "left out %", "median %", "interval covers %"),
    ]
    for kind in dict.fromkeys(run.family.kind for run in runs):
        own = [run for run in runs if run.family.kind == kind]
        lines += [_family_row(kind, ", ".join(run.family.profiles), [run]) for run in own]
        if len(own) > 1:
            lines.append(_family_row(kind, "all of these", own))
    if skipped:
        lines.append(f"\nNot refitted for this page: {', '.join(sorted(set(skipped)))}.")
    return "\n".join(lines) + "\n"


def _family_row(kind: str, name: str, runs: Sequence[left_out.Run]) -> str:
    ones = [run.fitted for run in runs]
    cases = sum(one.cases for one in ones)
    errors = np.abs(np.expm1([row.residual for one in ones for row in one.left_out]))

    def mean(field: str) -> str:
        return _percent(sum(getattr(one, field) * one.cases for one in ones) / cases)

    return _row(
        kind,
        name,
        str(cases),
        str(sum(one.groups for one in ones)),
        mean("error_in_sample"),
        mean("error_left_out"),
        _percent(float(np.median(errors))),
        mean("coverage"),
    )


def _widths(runs: Sequence[left_out.Run]) -> str:
    lines = [
        "## Intervals of the profiles\n",
        "Share of left-out cases within the 80 % interval that the profile states: between 70 and\n"
        f"90 % is honest. With fewer than {left_out.FEWEST_ROWS} rows the figure says little.\n",
        *_header("profile", "rows", "relative error", "left-out rows need", "covers %", ""),
    ]
    widths = left_out.widths(runs)
    for name, one in widths.items():
        few = "few rows" if one.rows < left_out.FEWEST_ROWS else ""
        figures = (f"{one.relative_error:.3f}", f"{one.needed:.3f}", _percent(one.coverage))
        lines.append(_row(name, str(one.rows), *figures, few))
    rows = sum(one.rows for one in widths.values())
    if rows:
        inside = sum(one.coverage * one.rows for one in widths.values()) / rows
        lines.append(_row("all", str(rows), "", "", _percent(inside), ""))
    return "\n".join(lines) + "\n"


def _frameworks_left_out(paths: Sequence[Path]) -> str:
    cases = unknown_cases(paths)
    lines = [
        "## With a whole framework left out\n",
        "Steps and loads as if nobody had measured the software: profiles `generic` and\n"
        "`generic-engine`, whose constants are carried over from other software.\n",
        *_header("kind", "framework", "cases", "mean %", "median %", "bias %", "interval covers %"),
    ]
    for kind, name in sorted({(one.kind, one.framework) for one in cases}):
        own = [one for one in cases if (one.kind, one.framework) == (kind, name)]
        residuals = np.array([one.residual for one in own])
        errors = np.abs(np.expm1(residuals))
        width = NORMAL_80 * load_framework(own[0].profile).relative_error
        figures = (
            errors.mean(),
            np.median(errors),
            np.expm1(residuals).mean(),
            (np.abs(residuals) <= width).mean(),
        )
        lines.append(_row(kind, name, str(len(own)), *(_percent(float(x)) for x in figures)))
    return "\n".join(lines) + "\n"


def _kernels() -> str:
    lines = [
        "## Kernel tables\n",
        "Errors on measured points that were held out of the table (one in five), by device and\n"
        "kernel; median above 5 % or 90th percentile above 15 % is marked.\n",
        *_header("device", "kernel", "points", "median %", "p90 %", ""),
    ]
    for path in sorted((ROOT / "hardware_profiles" / "kernels").glob("*.yaml")):
        for kernel, error in load_yaml(path)["held_out_error"].items():
            high = any(error[name] > target for name, target in KERNEL_TARGETS.items())
            figures = (_percent(error["median"]), _percent(error["p90"]), "high" if high else "")
            lines.append(_row(path.stem, kernel, str(error["points"]), *figures))
    return "\n".join(lines) + "\n"


def _worst(result: Validation) -> str:
    lines = [
        "## Worst cases\n",
        "The largest errors of step times and throughputs in sample, the largest predicted parts\n"
        "(for throughput: what the rate would be if this part were all), and what the data say.\n",
        *_header("case", "metric", "predicted / measured", "parts", "what the data say"),
    ]
    shown = 0
    for one, figure, _ in result.worst(len(result.outcomes)):
        if figure.metric in VERDICTS or shown == WORST:
            continue
        shown += 1
        parts = sorted(figure.breakdown.items(), key=lambda part: -part[1])
        if figure.metric == "throughput":
            parts.reverse()
        words = ", ".join(f"{name} {value:.3g}" for name, value in parts[:3])
        ratio = f"{figure.predicted / figure.measured:.2f}"
        lines.append(_row(one.id, figure.metric, ratio, words, note(one.id)))
    return "\n".join(lines) + "\n"


def _profiles(result: Validation) -> str:
    used = {one.prediction.framework for one in result.outcomes if one.prediction is not None}
    lines = ["## Profiles\n", *_header("profile", "relative error", "sha256 of the file")]
    for name in sorted(used & set(list_frameworks())):
        error, start = load_framework(name).relative_error, digest(profile_path(name))
        lines.append(_row(name, f"{error:.3f}", f"`{start}`"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
