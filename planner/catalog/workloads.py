"""Problem files and command-line options: what to plan, for which cluster.

A problem file is YAML with the keys of `problem_file.ProblemFile`; paths in it are relative to it.
Options of the command line take precedence over the file. Whatever neither says is filled in and
recorded among the workload's assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.catalog.data import load_yaml, validate
from planner.catalog.given_lengths import lengths, prompt_or_default
from planner.catalog.hardware import cluster_from, parse_cluster
from planner.catalog.models import load_model, read_config
from planner.catalog.presets import preset_content, preset_notes
from planner.catalog.problem_file import ProblemFile
from planner.errors import InputError
from planner.schema import Cluster, Limits, ModelSpec, Schema, Workload

MAX_SEQUENCES = 10**8
"""Most responses in a step; more is taken for a mistake."""

_KL_WEIGHT = 0.001  # DeepSeek-R1 (arXiv:2501.12948); any positive value costs the same


@dataclass(frozen=True)
class Problem:
    """A workload, a cluster, and what the file says about the search."""

    workload: Workload
    cluster: Cluster
    space: str = "any"
    """Search space: a shipped one's name, or the path of a YAML file."""
    objective: str | None = None
    limits: Limits = field(default_factory=Limits)
    tokens: float | None = None
    top: int | None = None
    deadline_s: float | None = None


# Option of the command line -> where it stands in a problem file.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "algorithm": ("algorithm",),
    "cluster": ("cluster",),
    "prompts": ("batch", "prompts"),
    "samples": ("batch", "samples"),
    "optimizer_steps": ("batch", "optimizer_steps"),
    "epochs": ("batch", "epochs"),
    "prompt_mean": ("prompt", "mean"),
    "prompt_max": ("prompt", "max"),
    "response_mean": ("response", "mean"),
    "response_max": ("response", "max"),
    "lengths": ("response", "file"),
    "kl_weight": ("kl_weight",),
    "max_staleness": ("max_staleness",),
    "space": ("space",),
    "objective": ("objective",),
    "tokens": ("tokens",),
    "max_devices": ("limits", "devices"),
    "max_step_time": ("limits", "step_time_s"),
    "max_cost_per_step": ("limits", "cost_per_step_usd"),
    "max_cost": ("limits", "cost_usd"),
    "top": ("top",),
    "deadline": ("deadline_s",),
}
_SHAPE_KEYS = ("mean", "kind", "sigma", "histogram", "file", "field")


def load_problem(path: str | Path) -> Problem:
    """Workload and cluster from a problem file such as those in examples/.

    Raises InputError naming the file and the field, what was given and what would be right.
    """
    return problem_from(Path(path))


def problem_from(
    file: Path | None = None,
    *,
    preset: str | None = None,
    models: Mapping[str, str] | None = None,
    **options: Any,
) -> Problem:
    """A problem from a file or a preset, from options, or from either with options on top.

    `models` maps roles to references; `options` are the keys of `_OPTIONS`, None where not given.
    Raises InputError; for an option it names the option, for a field the file and the field.
    """
    given = {name: value for name, value in options.items() if value is not None}
    unknown = set(given) - set(_OPTIONS)
    if unknown:
        raise TypeError(f"unknown options: {sorted(unknown)}")
    if "lengths" in given and "response_mean" in given:
        raise InputError(
            "gives the response lengths twice",
            where="--lengths",
            remedy="Give either --lengths or --response-mean.",
        )
    if preset is not None and file is not None:
        raise InputError(
            "gives the workload twice", where="--preset", remedy="Give a file or a preset."
        )
    content = _read(file) if file is not None else preset_content(preset) if preset else {}
    for name, value in given.items():
        _put(content, _OPTIONS[name], str(value) if isinstance(value, Path) else value)
    if models:
        _put_models(content, models)
    source = str(file) if file is not None else f"preset {preset}" if preset else "options"
    try:
        read = validate(ProblemFile, content, source)
        return _problem(read, source, file, preset_notes(preset) if preset else [])
    except InputError as error:
        raise _at_option(error, source, given, models or {}) from None


def _problem(read: ProblemFile, source: str, file: Path | None, notes: list[str]) -> Problem:
    _require(read, source)
    assert read.algorithm is not None
    assert read.cluster is not None
    models = {
        role: _model(reference, f"{source}: models.{role}")
        for role, reference in read.models.items()
    }
    kl_weight = _kl_weight(read, models, notes)
    prompt = lengths(prompt_or_default(read.prompt, notes), f"{source}: prompt", notes)
    response = lengths(read.response, f"{source}: response", notes)
    workload = {
        "name": read.name or (file.stem if file else f"{read.algorithm}-{_main(models).name}"),
        "algorithm": read.algorithm,
        "models": {role: model.model_dump(mode="json") for role, model in models.items()},
        "prompts_per_step": read.batch.prompts,
        "samples_per_prompt": read.batch.samples,
        "prompt_length": prompt.model_dump(mode="json"),
        "response_length": response.model_dump(mode="json"),
        "kl_weight": kl_weight,
        **_settings(read, notes),
    }
    workload["name"] = workload["name"][:200]
    if isinstance(read.cluster, str):
        cluster = parse_cluster(read.cluster)
    else:
        cluster = cluster_from(read.cluster, f"{source}: cluster", "cluster")
    return Problem(
        workload=validate(Workload, {**workload, "assumptions": notes}, source),
        cluster=cluster,
        space=read.space or "any",
        objective=read.objective,
        limits=Limits(**read.limits.model_dump()),
        tokens=read.tokens,
        top=read.top,
        deadline_s=read.deadline_s,
    )


def _settings(read: ProblemFile, notes: list[str]) -> dict[str, Any]:
    """Fields of Workload with a default; every default that is taken is noted."""
    batch, dtypes = read.batch, read.dtypes
    defaults: dict[str, tuple[Any, Any, str]] = {
        "optimizer_steps": (batch.optimizer_steps, 1, "optimizer steps: 1 in an epoch"),
        "epochs": (batch.epochs, 1, "epochs: 1"),
        "old_logprobs": (
            read.old_logprobs,
            "recompute",
            "old log-probabilities: recomputed by the trainer",
        ),
        "max_staleness": (
            read.max_staleness,
            1,
            "staleness: synchronous and one-step-off plans are considered",
        ),
        "train_dtype": (dtypes.train, "bf16", "training precision: bf16"),
        "generate_dtype": (dtypes.generate, "bf16", "generation precision: bf16"),
        "kv_cache_dtype": (dtypes.kv_cache, "bf16", "key-value cache: bf16"),
    }
    settings: dict[str, Any] = {"critic_optimizer_steps": batch.critic_optimizer_steps}
    # What is special about an algorithm has a neutral default, which needs no note.
    special = {
        "acceptance": batch.acceptance,
        "oversampling": batch.oversampling,
        "max_rounds": batch.max_rounds,
        "partial_rollout": batch.partial_rollout,
        "tail_batching": batch.tail_batching,
        "kept_fraction": batch.kept_fraction,
        "token_budget": batch.token_budget,
        "replay_sequences": batch.replay,
        "critic_epochs": batch.critic_epochs,
        "lora_rank": read.lora_rank,
        "turns": read.turns,
        "block_diffusion": read.block_diffusion,
        "speculation": read.speculation,
        "gradient_exchange": read.gradient_exchange,
    }
    for name, value in special.items():
        if value is not None:
            settings[name] = value.model_dump(mode="json") if isinstance(value, Schema) else value
    for name, (value, default, note) in defaults.items():
        settings[name] = default if value is None else value
        if value is None:
            notes.append(f"{note} (not given)")
    if read.environment is not None:
        settings["environment"] = read.environment.model_dump(mode="json")
    elif "reward" not in read.models:
        notes.append("verifier: takes no time (environment not given)")
    return settings


def _kl_weight(read: ProblemFile, models: dict[str, ModelSpec], notes: list[str]) -> float:
    """The KL weight; adds the reference model, which is the actor's unless given."""
    weight = read.kl_weight
    if weight is None:
        weight = _KL_WEIGHT if "reference" in models else 0.0
        because = "a reference model is given" if weight else "no reference model is given"
        notes.append(f"KL weight: {weight:g} ({because})")
    elif weight == 0.0 and "reference" in models:
        notes.append("the reference model does not run: the KL weight is 0")
    if weight > 0.0 and "reference" not in models and "actor" in models:
        models["reference"] = models["actor"]
        notes.append(f"reference model: the actor's, {models['actor'].name} (not given)")
    return weight


def _main(models: Mapping[str, ModelSpec]) -> ModelSpec:
    """The model that a workload is named after: the actor, or the only one."""
    return models.get("actor") or next(iter(models.values()))


def _model(reference: str | dict[str, Any], where: str) -> ModelSpec:
    """A model by reference, or described in place (config.json's keys, or ModelSpec's)."""
    if isinstance(reference, str):
        try:
            return load_model(reference)
        except InputError as error:
            if error.where is not None:
                raise
            raise InputError(error.message, where=where, remedy=error.remedy) from None
    if "model_type" in reference or "num_hidden_layers" in reference:
        return read_config(reference, str(reference.get("_name_or_path") or "inline"), where)
    return validate(ModelSpec, {"name": "inline", "architecture": "custom", **reference}, where)


def _require(read: ProblemFile, source: str) -> None:
    """Raise InputError listing what a problem cannot do without."""
    needed = {
        "algorithm (--algorithm)": read.algorithm,
        # Which other roles an algorithm cannot do without, its graph knows.
        "models.actor (--actor)": read.models or None,
        "cluster (--cluster)": read.cluster,
        "batch.prompts (--prompts)": read.batch.prompts,
        "batch.samples (--samples)": read.batch.samples,
    }
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise InputError(
            f"missing: {', '.join(missing)}",
            where=source,
            remedy="Give it in a problem file (see examples/) or as an option."
            if len(missing) == 1
            else "Give them in a problem file (see examples/) or as options.",
        )
    assert read.batch.prompts is not None
    assert read.batch.samples is not None
    sequences = read.batch.prompts * read.batch.samples
    if sequences > MAX_SEQUENCES:
        raise InputError(
            f"prompts x samples = {sequences:,} responses in a step",
            where=f"{source}: batch",
            remedy=f"At most {MAX_SEQUENCES:,} are planned for.",
        )
    for key in ("optimizer_steps", "critic_optimizer_steps"):
        steps = getattr(read.batch, key)
        if steps is not None and not _selects(read) and sequences % steps != 0:
            raise InputError(
                f"the {sequences:,} responses of a step (prompts x samples) are not a multiple of "
                f"{key} {steps:,}",
                where=f"{source}: batch.{key}",
                remedy=f"Near divisors: {_near_divisors(sequences, steps)}.",
            )


def _selects(read: ProblemFile) -> bool:
    """True when training sees another number of responses than the step has."""
    batch = read.batch
    return any(
        value is not None for value in (batch.kept_fraction, batch.token_budget, batch.replay)
    )


def _near_divisors(number: int, near: int) -> str:
    """The next smaller and the next larger divisor of `number`, in words."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    divisors = sorted({*small, *(number // d for d in small)})
    below = [d for d in divisors if d < near][-1:]
    above = [d for d in divisors if d > near][:1]
    return " and ".join(f"{d:,}" for d in below + above)


def _read(path: Path) -> dict[str, Any]:
    """A problem file's content, with paths made absolute and histogram keys as text."""
    content = load_yaml(path)
    if not isinstance(content, dict):
        raise InputError(
            "is empty" if content is None else "is not a mapping of keys to values",
            where=str(path),
            remedy="Start from a file in examples/.",
        )
    folder = path.parent
    models = content.get("models")
    if isinstance(models, dict):
        content["models"] = {role: _beside(reference, folder) for role, reference in models.items()}
    for key in ("cluster", "space"):
        if key in content:
            content[key] = _beside(content[key], folder)
    for key in ("prompt", "response"):
        lengths = content.get(key)
        if isinstance(lengths, dict):
            if isinstance(lengths.get("file"), str):
                lengths["file"] = str(folder / lengths["file"])
            if isinstance(lengths.get("histogram"), dict):
                histogram = lengths["histogram"]
                lengths["histogram"] = {str(tokens): w for tokens, w in histogram.items()}
    return content


def _beside(reference: Any, folder: Path) -> Any:
    """A path relative to the problem file, when there is such a file; else what was given."""
    if not isinstance(reference, str) or not reference or len(reference) > 4096:
        return reference
    path = folder / reference
    try:
        exists = path.is_file() or (path / "config.json").is_file()
    except (OSError, ValueError):
        return reference
    return str(path) if exists else reference


def _put(content: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    """Write an option over the file's content."""
    *parents, key = place
    for parent in parents:
        below = content.get(parent)
        content[parent] = dict(below) if isinstance(below, dict) else {}
        content = content[parent]
    if parents and parents[0] in ("prompt", "response") and key in ("mean", "file"):
        for other in _SHAPE_KEYS:
            content.pop(other, None)  # another way to give the lengths replaces the file's
    content[key] = value


def _put_models(content: dict[str, Any], models: Mapping[str, str]) -> None:
    given = content.get("models")
    content["models"] = {**(given if isinstance(given, dict) else {}), **models}


def _at_option(
    error: InputError, source: str, given: Mapping[str, Any], models: Mapping[str, str]
) -> InputError:
    """The same error naming the option, when an option put the wrong value there."""
    places = {".".join(_OPTIONS[name]): name for name in given}
    places |= {f"models.{role}": role for role in models}
    for place, name in places.items():
        if error.where == f"{source}: {place}":
            option = f"--{name.replace('_', '-')}"
            return InputError(error.message, where=option, remedy=error.remedy)
    return error
