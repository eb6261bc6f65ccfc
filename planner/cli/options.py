"""Options that several commands share: what to plan, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError

WORKLOAD = "Workload (instead of a file, or to override it)"
SEARCH = "Search"

Preset = Annotated[
    str | None,
    typer.Option(
        help="A named workload with its cluster (`rlmplan workloads list`).",
        rich_help_panel=WORKLOAD,
    ),
]
Algorithm = Annotated[
    str | None,
    typer.Option(help="grpo, ppo, dapo, ... (`rlmplan workloads list`).", rich_help_panel=WORKLOAD),
]
Actor = Annotated[
    str | None,
    typer.Option(
        help="Model: a config.json, a folder, a catalogue name or a cached Hugging Face id.",
        rich_help_panel=WORKLOAD,
    ),
]
Critic = Annotated[str | None, typer.Option(rich_help_panel=WORKLOAD)]
Reward = Annotated[str | None, typer.Option(rich_help_panel=WORKLOAD)]
Reference = Annotated[str | None, typer.Option(rich_help_panel=WORKLOAD)]
Model = Annotated[
    list[str] | None,
    typer.Option(
        help="ROLE=MODEL for any other role (teacher, prm, env_llm, ...); repeatable.",
        rich_help_panel=WORKLOAD,
    ),
]
Prompts = Annotated[int | None, typer.Option(help="Prompts in a step.", rich_help_panel=WORKLOAD)]
Samples = Annotated[
    int | None, typer.Option(help="Responses for each prompt.", rich_help_panel=WORKLOAD)
]
PromptMean = Annotated[
    float | None, typer.Option(help="Mean prompt, tokens.", rich_help_panel=WORKLOAD)
]
PromptMax = Annotated[
    int | None, typer.Option(help="Longest prompt, tokens.", rich_help_panel=WORKLOAD)
]
ResponseMean = Annotated[
    float | None, typer.Option(help="Mean response, tokens.", rich_help_panel=WORKLOAD)
]
ResponseMax = Annotated[
    int | None, typer.Option(help="Longest response, tokens.", rich_help_panel=WORKLOAD)
]
Lengths = Annotated[
    Path | None,
    typer.Option(help="File of response lengths (one a line, or JSON).", rich_help_panel=WORKLOAD),
]
OptimizerSteps = Annotated[
    int | None, typer.Option(help="Optimizer steps in an epoch.", rich_help_panel=WORKLOAD)
]
Epochs = Annotated[int | None, typer.Option(rich_help_panel=WORKLOAD)]
KlWeight = Annotated[
    float | None,
    typer.Option(help="KL weight; above zero the reference model runs.", rich_help_panel=WORKLOAD),
]
MaxStaleness = Annotated[
    int | None,
    typer.Option(help="Versions that samples may lag: 0 is synchronous.", rich_help_panel=WORKLOAD),
]
Space = Annotated[
    str | None,
    typer.Option(
        help="Search space: any, a launcher's (rlmplan launchers --json), or a YAML file.",
        rich_help_panel=SEARCH,
    ),
]
Launcher = Annotated[
    str | None,
    typer.Option(
        help="Instead of --space: the best of a launcher's spaces.", rich_help_panel=SEARCH
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="What plans are ranked by: step_time (default), tokens_per_s, "
        "tokens_per_s_per_device, gpu_hours_to_tokens, cost_per_step, cost_to_tokens.",
        rich_help_panel=SEARCH,
    ),
]
Tokens = Annotated[
    float | None,
    typer.Option(
        help="Token budget (prompt and response) of ..._to_tokens and --max-cost, e.g. 1e9.",
        rich_help_panel=SEARCH,
    ),
]


def by_role(given: list[str]) -> dict[str, str | None]:
    """Role -> model of each ROLE=MODEL; InputError for anything else."""
    pairs = [text.partition("=") for text in given]
    for text, (role, _, name) in zip(given, pairs, strict=True):
        if not role.isidentifier() or not name:
            raise InputError(
                f"{text!r} is not ROLE=MODEL",
                where="--model",
                remedy="For example --model teacher=Qwen/Qwen3-32B.",
            )
    return {role: name for role, _, name in pairs}


def models(roles: dict[str, str | None], given: list[str] | None) -> dict[str, str]:
    """Role -> model of the options that name one."""
    every = roles | by_role(given or [])
    return {role: name for role, name in every.items() if name is not None}


def one_of_space_and_launcher(space: str | None, launcher: str | None) -> None:
    """Raise InputError where both are given."""
    if launcher is not None and space is not None:
        raise InputError(
            "gives a launcher and a search space",
            where="--launcher",
            remedy="Give one of --launcher and --space.",
        )
