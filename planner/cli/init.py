"""`rlmplan init`: asks the few questions that matter and writes a problem file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.errors import InputError, PlannerError

_NEEDS = {"critic": "Critic model", "reward": "Reward model", "teacher": "Teacher model"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("init")(init)


def init(
    file: Annotated[Path, typer.Argument(help="Problem file to write.")] = Path("rlmplan.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Ask what matters for a plan, check every answer, write the problem file."""
    from planner.cli.files import write_file

    if file.suffix not in (".yaml", ".yml"):
        raise InputError("a problem file ends in .yaml", where=str(file), remedy="Rename it.")
    if file.exists() and not force:
        raise InputError("exists", where=str(file), remedy="Give another name, or --force.")
    content = _questions()
    write_file(file, _text(content), "FILE")
    typer.echo(f"Written to {file}. Next:\n  rlmplan plan {file}")


def _questions() -> dict[str, Any]:
    from planner.catalog.hardware import parse_cluster
    from planner.catalog.models import load_model
    from planner.catalog.workloads import problem_from
    from planner.workload.algorithms import find_algorithm

    algorithm = _ask("Algorithm (rlmplan workloads list)", "grpo", _checked(find_algorithm))
    models = {
        "actor": _ask("Actor: a model's name, config.json or folder", None, _checked(load_model))
    }
    for role, question in _NEEDS.items():
        if _wants(algorithm, models, role):
            models[role] = _ask(question, models["actor"], _checked(load_model))
    cluster = _ask(
        "Cluster NAME:NODESxDEVICES, or a file of rlmplan detect",
        "h100:1x8",
        _checked(parse_cluster),
    )
    prompts = _ask("Prompts in a step", "128", _whole)
    samples = _ask("Responses for each prompt", "8", _whole)
    prompt_max = _ask("Longest prompt, tokens", "1024", _whole)
    response_max = _ask("Longest response, tokens", "8192", _whole)
    mean = _ask(
        "Mean response, tokens (your logs have it; it matters most)",
        str(max(1, int(response_max) // 4)),
        _whole,
    )
    stale = _ask("Versions that samples may be behind the policy (0: synchronous)", "0", _whole)
    problem_from(  # what does not go together is refused before anything is written
        None,
        algorithm=algorithm,
        models=models,
        cluster=cluster,
        prompts=int(prompts),
        samples=int(samples),
        prompt_max=int(prompt_max),
        response_mean=float(mean),
        response_max=int(response_max),
        max_staleness=int(stale),
    )
    return {
        "algorithm": algorithm,
        "models": models,
        "cluster": cluster,
        "batch": {"prompts": int(prompts), "samples": int(samples)},
        "prompt": {"max": int(prompt_max)},
        "response": {"mean": int(mean), "max": int(response_max)},
        "max_staleness": int(stale),
    }


def _wants(algorithm: str, models: dict[str, str], role: str) -> bool:
    """True when the algorithm cannot be planned with the models so far for want of the role."""
    from planner.catalog.workloads import problem_from

    try:
        problem_from(None, algorithm=algorithm, models=models, cluster="h100:1x8")
    except PlannerError as error:
        return role in str(error)
    return False


def _ask(question: str, default: str | None, check: Callable[[str], str | None]) -> str:
    """The first answer without a complaint."""
    while True:
        answer = str(typer.prompt(question, default=default)).strip()
        complaint = check(answer)
        if complaint is None:
            return answer
        typer.echo(f"  {complaint}", err=True)


def _checked(read: Callable[[str], Any]) -> Callable[[str], str | None]:
    def check(answer: str) -> str | None:
        try:
            read(answer)
        except PlannerError as error:
            return str(error)
        return None

    return check


def _whole(answer: str) -> str | None:
    if answer.isdigit() and len(answer) < 10:
        return None
    return f"{answer!r} is not a whole number"


def _text(content: dict[str, Any]) -> str:
    import yaml

    head = "# A problem for rlmplan; docs/algorithms.md has all fields.\n"
    return head + yaml.safe_dump(content, sort_keys=False)
