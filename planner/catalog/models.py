"""Finds a model's architecture: a file, a name in the shipped catalogue, or the local HF cache."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.catalog.architectures import known_architectures, read_config
from planner.catalog.data import MAX_INPUT_BYTES, load_yaml, read_text, validate
from planner.errors import InputError
from planner.schema import ModelSpec

__all__ = [
    "CatalogueEntry",
    "ModelSummary",
    "catalogue",
    "known_architectures",
    "list_models",
    "load_model",
    "read_config",
]

_CONFIGS = Path(__file__).resolve().parent / "model_configs"
_MAX_CONFIG_BYTES = MAX_INPUT_BYTES  # far above any config; guards against a weights file
_MAX_REF_BYTES = 4096  # refs/main holds one revision
_MAX_NAME = 200
_REMEDY = (
    "Give a catalogue name (`rlmplan models list`), the path of a config.json or of a ModelSpec "
    "file, or an id in the local Hugging Face cache."
)
_CACHED = re.compile(r"models--([^/]+)/snapshots/[^/]+$")
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class CatalogueEntry:
    """One shape of the shipped catalogue, under one or several Hugging Face ids."""

    id: str
    variants: tuple[str, ...]
    """Other ids of the same shape (instruction-tuned, distilled, quantized)."""
    aliases: tuple[str, ...]
    """Further short names."""
    config: Mapping[str, Any]
    """The fields of the model's `config.json` that its architecture reads."""
    max_position: int
    """Longest sequence that the publisher documents, with rotary scaling where it needs that."""
    published_total: float
    published_active: float | None
    """Parameters as published; None for a dense model."""
    source: str


@dataclass(frozen=True)
class ModelSummary:
    """One line of the catalogue; parameter counts are the published ones."""

    name: str
    architecture: str
    total_parameters: float
    active_parameters: float
    variants: tuple[str, ...] = ()


def load_model(reference: str | Path) -> ModelSpec:
    """The architecture that `reference` names.

    `reference` is the path of a folder with a `config.json`, of a `config.json`, or of a
    ModelSpec file (YAML or JSON with ModelSpec's keys); a catalogue name in any case, full
    ("Qwen/Qwen3-32B") or short ("qwen3-32b"); or an id in the local Hugging Face cache. They
    are tried in this order; the network is never used. Raises InputError.
    """
    text = os.fspath(reference)
    if not text.strip():
        raise InputError("no model is named", remedy=_REMEDY)
    path = os.path.expanduser(text)
    if os.path.isfile(path):
        return _read_file(path, _file_name(text))
    if os.path.isfile(os.path.join(path, "config.json")):
        return _read_file(os.path.join(path, "config.json"), _name(text))
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(
            "not a regular file", where=text, remedy="Save its content in a file and give its path."
        )
    if isinstance(reference, str):
        found = _from_catalogue(text) or _from_cache(text)
        if found:
            return found
    raise _not_found(reference, path)


def list_models() -> list[ModelSummary]:
    """Every model of the shipped catalogue, in its order: by family, then by size."""
    return [
        ModelSummary(
            name=entry.id,
            architecture=str(entry.config["model_type"]),
            total_parameters=entry.published_total,
            active_parameters=entry.published_active or entry.published_total,
            variants=entry.variants,
        )
        for entry in catalogue()
    ]


@cache
def catalogue() -> tuple[CatalogueEntry, ...]:
    """The shipped catalogue, read once."""
    entries = []
    for path in sorted(_CONFIGS.glob("*.json")):
        for item in json.loads(path.read_text(encoding="utf-8")):
            active = item.get("published_active_b")
            entries.append(
                CatalogueEntry(
                    id=item["id"],
                    variants=tuple(item.get("variants", ())),
                    aliases=tuple(item.get("aliases", ())),
                    config=MappingProxyType(item["config"]),
                    max_position=item.get(
                        "max_position", item["config"]["max_position_embeddings"]
                    ),
                    published_total=_parameters(item["published_total_b"]),
                    published_active=None if active is None else _parameters(active),
                    source=item["source"],
                )
            )
    return tuple(entries)


def _parameters(billions: float) -> float:
    return float(round(billions * 1e9))


@cache
def _index() -> Mapping[str, tuple[str, CatalogueEntry]]:
    """Lower-case full, short and alias names -> the id they stand for, and its entry."""
    index: dict[str, tuple[str, CatalogueEntry]] = {}
    for entry in catalogue():
        for full in (entry.id, *entry.variants):
            index[full.lower()] = (full, entry)
            index.setdefault(full.rpartition("/")[2].lower(), (full, entry))
        for alias in entry.aliases:
            index[alias.lower()] = (entry.id, entry)
    return MappingProxyType(index)


def _from_catalogue(reference: str) -> ModelSpec | None:
    if reference.lower() not in _index():
        return None
    name, entry = _index()[reference.lower()]
    spec = read_config(dict(entry.config), name, "model catalogue")
    return spec.model_copy(
        update={
            "max_position": entry.max_position,
            "published_total_parameters": entry.published_total,
            "published_active_parameters": entry.published_active,
            "source": entry.source,
        }
    )


def _from_cache(reference: str) -> ModelSpec | None:
    """The newest downloaded revision of an id, `main` first; None when there is none."""
    if not _ID.fullmatch(reference) or ".." in reference:
        return None
    folder = hf_cache() / f"models--{reference.replace('/', '--')}"
    for snapshot in _snapshots(folder):
        config = snapshot / "config.json"
        if os.path.isfile(config):
            return _read_file(str(config), reference)
    return None


def hf_cache() -> Path:
    """Where Hugging Face keeps downloads: HF_HUB_CACHE, else HF_HOME/hub, else its default."""
    explicit = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return Path(os.path.expanduser(explicit))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = os.environ.get("HF_HOME") or os.path.join(base, "huggingface")
    return Path(os.path.expanduser(home)) / "hub"


def _snapshots(folder: Path) -> Iterator[Path]:
    snapshots = folder / "snapshots"
    try:
        main = read_text(folder / "refs" / "main", _MAX_REF_BYTES).strip()
        if _ID.fullmatch(main):
            yield snapshots / main
    except InputError:
        pass  # downloaded by revision: no refs/main
    try:
        others = [(entry.stat().st_mtime, entry.name) for entry in snapshots.iterdir()]
    except OSError:
        return
    yield from (snapshots / name for _, name in sorted(others, reverse=True))


def _read_file(path: str, name: str) -> ModelSpec:
    content = _parse(Path(path))
    is_config = isinstance(content, dict) and (
        "model_type" in content or "num_hidden_layers" in content
    )
    if is_config or not isinstance(content, dict):
        return read_config(content, name, path)
    return validate(
        ModelSpec, {"name": name, "architecture": "custom", "source": path, **content}, path
    )


def _parse(path: Path) -> Any:
    if path.suffix.lower() in (".yaml", ".yml"):
        return load_yaml(path)
    where = str(path)
    text = read_text(path, _MAX_CONFIG_BYTES, where, remedy="Give a config.json or ModelSpec file.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not valid JSON: {str(error) or type(error).__name__}",
            where=where,
            remedy="Correct the syntax; a YAML file must end in .yaml.",
        ) from None


def _file_name(reference: str) -> str:
    """Name of a model given as a file: the folder of a config.json, else the file's stem."""
    path = Path(reference)
    if path.name != "config.json":
        return _name(path.stem)
    return _name(str(path.parent))


def _name(reference: str) -> str:
    """A path as the model's name: the id inside the Hugging Face cache, else the path itself.

    The last part alone where the path is too long for a name, or is the working folder.
    """
    trimmed = reference.rstrip("/") or reference
    cached = _CACHED.search(trimmed)
    if cached:
        return cached.group(1).replace("--", "/", 1)[:_MAX_NAME]
    if trimmed in (".", "..") or len(trimmed) > _MAX_NAME:
        trimmed = Path(trimmed).resolve().name or trimmed
    return trimmed[:_MAX_NAME]


def _not_found(reference: str | Path, path: str) -> InputError:
    text = str(reference)
    shown = text if len(text) <= _MAX_NAME else text[:_MAX_NAME] + "..."
    if os.path.isdir(path):
        return InputError("the folder has no config.json", where=shown, remedy=_REMEDY)
    if isinstance(reference, Path) or text.lower().endswith((".json", ".yaml", ".yml")):
        return InputError("no such file", where=shown, remedy="Check the path.")
    names = sorted(name for name in _index() if ("/" in name) == ("/" in text))
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.6)
    full = list(dict.fromkeys(_index()[name][0] for name in near))
    hint = f"Did you mean {' or '.join(full)}? " if full else ""
    return InputError(
        f"unknown model {shown!r}: neither in the catalogue nor in {hf_cache()}",
        remedy=hint + _REMEDY,
    )
