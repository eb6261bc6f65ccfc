"""`rlmplan init`: asks the few questions that matter and writes a problem file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.errors import InputError, PlannerError

# Which roles an algorithm needs does not depend on the model nor on the sizes, which are asked for
# later; two samples suit the algorithms that train on pairs, too.
_ANY_MODEL = "Qwen/Qwen2.5-7B"
_ANY_SIZE: dict[str, Any] = {
    "cluster": "h100:1x8",
    "prompts": 128,
    "samples": 2,
    "response_mean": 2048.0,
    "response_max": 8192,
}


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
    from planner.schema.workload import MaxTokens, MeanTokens, Prompts, Samples, Staleness
    from planner.workload.algorithms import build_graph

    algorithm = _ask("Algorithm (rlmplan workloads list)", "grpo", _checked(_needed_roles))
    models = {
        "actor": _ask("Actor: a model's name, config.json or folder", None, _checked(load_model))
    }
    for role in _needed_roles(algorithm):
        question = f"{role.replace('_', ' ').capitalize()} model"
        models[role] = _ask(question, models["actor"], _checked(load_model))
    cluster = _ask(
        "Cluster NAME:NODESxDEVICES, or a file of rlmplan detect",
        "h100:1x8",
        _checked(parse_cluster),
    )
    prompts = _ask("Prompts in a step", "128", _whole(Prompts))
    samples = _ask("Responses for each prompt", "8", _whole(Samples))
    prompt_max = _ask("Longest prompt, tokens", "1024", _whole(MaxTokens))
    response_max = _ask("Longest response, tokens", "8192", _whole(MaxTokens))
    mean = _ask(
        "Mean response, tokens (your logs have it; it matters most)",
        str(max(1, int(response_max) // 4)),
        _whole(MeanTokens, most=int(response_max)),
    )
    stale = _ask(
        "Versions that samples may be behind the policy (0: synchronous)", "0", _whole(Staleness)
    )
    options: dict[str, Any] = {
        "prompts": int(prompts),
        "samples": int(samples),
        "prompt_max": int(prompt_max),
        "response_mean": float(mean),
        "response_max": int(response_max),
        "max_staleness": int(stale),
    }
    # What does not go together is refused before anything is written.
    build_graph(
        problem_from(None, algorithm=algorithm, models=models, cluster=cluster, **options).workload
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


def _needed_roles(algorithm: str) -> list[str]:
    """The roles beside the actor that the algorithm cannot do without.

    Raises InputError for an unknown algorithm, and for one that needs what is not asked for here.
    """
    from planner.catalog.workloads import problem_from
    from planner.workload.algorithms import build_graph, find_algorithm
    from planner.workload.calls import MissingRoleError

    find_algorithm(algorithm)
    roles: list[str] = []
    while True:
        models = dict.fromkeys(["actor", *roles], _ANY_MODEL)
        problem = problem_from(None, algorithm=algorithm, models=models, **_ANY_SIZE)
        try:
            build_graph(problem.workload)
            return roles
        except MissingRoleError as error:
            roles.append(error.role)
        except InputError as error:
            raise InputError(
                error.message,
                where=error.where,
                remedy="That is not asked for here: start from a file in examples/ and "
                "docs/algorithms.md.",
            ) from None


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


def _whole(kind: Any, *, most: int | None = None) -> Callable[[str], str | None]:
    """A check for whole numbers that the schema's type takes, `most` at most."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(kind)

    def check(answer: str) -> str | None:
        if not (answer.isascii() and answer.isdigit() and len(answer) < 12):
            return f"{answer!r} is not a whole number"
        try:
            adapter.validate_python(int(answer))
        except ValidationError as error:
            words = error.errors()[0]["msg"].replace("Input should be", "is not", 1)
            return f"{answer} {words}"
        if most is not None and int(answer) > most:
            return f"{answer} is above the longest response, {most:,} tokens"
        return None

    return check


def _text(content: dict[str, Any]) -> str:
    import yaml

    head = "# A problem for rlmplan; docs/algorithms.md has all fields.\n"
    return head + yaml.safe_dump(content, sort_keys=False)
