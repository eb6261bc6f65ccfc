"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str) -> None:
    """Write `content` to a temporary name beside `path`, then rename.

    Raises OSError when the folder cannot be made or written; nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, (0o777 if content.startswith("#!") else 0o666) & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_files(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write a set of files below `folder`; names are relative and stay inside it."""
    written = []
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"file name {name!r} leaves the output folder")
        write_atomically(path, content)
        written.append(path)
    return written
