"""Writing files so that a reader never sees half of one, or of a set."""

from __future__ import annotations

import os
from pathlib import Path


def write_files(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write a set of files below `folder`: all to temporary names first, then renamed.

    Scripts (content that starts with "#!") become executable. Raises ValueError for a name that
    leaves the folder, OSError when something cannot be written; no file is left behind then.
    """
    root = folder.resolve()
    paths = [folder / name for name in files]
    for path in paths:
        if not path.resolve().is_relative_to(root):
            raise ValueError(f"file name {path.name!r} leaves the output folder")
    temporary = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        for path, content in zip(temporary, files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", newline="\n")
            if content.startswith("#!"):
                path.chmod(path.stat().st_mode | 0o111)
        for path, target in zip(temporary, paths, strict=True):
            path.replace(target)
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    return paths
