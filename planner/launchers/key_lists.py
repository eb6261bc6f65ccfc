"""The shipped lists of each launcher's settings: keys/NAME.json, by tools/launcher_keys.py."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from planner.launchers.settings import KeyList

_FOLDER = Path(__file__).parent / "keys"


@lru_cache(maxsize=32)
def load_keys(name: str) -> KeyList:
    """The list of that name: every setting with its default, and the sections that take any key."""
    content = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return KeyList(content["source"], content["defaults"], tuple(content["open"]))
