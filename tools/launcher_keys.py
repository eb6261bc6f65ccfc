"""Writes planner/launchers/keys/NAME.json: a launcher's settings with their defaults.

    python tools/launcher_keys.py yaml NAME SOURCE-TEXT FILE... [--open SECTION ...]
        [--add KEY ...]

The files are the launcher's own reference configurations, later ones over earlier ones. Sections
named with --open (profilers, engine arguments) take any key and are left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

KEYS = Path(__file__).parents[1] / "planner" / "launchers" / "keys"


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(content, dict) or (prefix and not content):
        return {prefix: content}
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["yaml"])
    parser.add_argument("name")
    parser.add_argument("source")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--open", nargs="*", default=[])
    parser.add_argument("--add", nargs="*", default=[], help="keys that no file sets")
    options = parser.parse_args()
    keys: dict[str, Any] = {}
    for file in options.files:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content.pop("defaults", None)
        keys |= flatten(content)
    keys = dict.fromkeys(options.add) | keys
    closed = {
        key: value
        for key, value in keys.items()
        if not any(key == name or key.startswith(f"{name}.") for name in options.open)
        and not key.endswith("_target_")
    }
    text = json.dumps(
        {"source": options.source, "open": options.open, "defaults": closed}, indent=0
    )
    (KEYS / f"{options.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
