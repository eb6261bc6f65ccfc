"""Reads the files of the measured kernel tables: one compressed NumPy file a device."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.catalog.data import data_path, did_you_mean
from planner.errors import InputError

KernelArrays = Mapping[str, npt.NDArray[Any]]
_KERNELS = ("gemm/bf16", "prefill", "decode", "mla_prefill", "mla_decode", "mla_absorb", "moe/bf16")
"""Grids that every table has."""


def list_kernel_tables() -> list[str]:
    """Names of all kernel tables, sorted; each is the id of the device it was measured on."""
    return sorted(path.stem for path in data_path("hardware_profiles", "kernels").glob("*.npz"))


def kernel_table_path(name: str) -> Path:
    """The file of a table: a packaged one's name, or the path of a measured one (.npz)."""
    if name.endswith(".npz"):
        return Path(name)
    return data_path("hardware_profiles", "kernels", f"{name}.npz")


@cache
def kernel_arrays(name: str) -> KernelArrays:
    """The arrays of a kernel table's file; read once and shared, so nobody writes to them.

    `name` is a packaged table's, or the path of a measured one's file (it ends in .npz).
    Raises InputError if there is no such table or its file is broken.
    """
    if name.endswith(".npz"):
        return _arrays_of(kernel_table_path(name), "Measure the device again: rlmplan measure.")
    if name not in list_kernel_tables():
        raise InputError(
            f"there is no kernel table {name!r}",
            where="kernel_table",
            remedy=did_you_mean(name, list_kernel_tables()),
        )
    return _arrays_of(kernel_table_path(name), "Install the package again.")


def _arrays_of(path: Path, remedy: str) -> KernelArrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"the kernel table cannot be read: {error}", where=str(path), remedy=remedy
        ) from None
    missing = [kernel for kernel in _KERNELS if not any(key.startswith(kernel) for key in arrays)]
    if missing:
        raise InputError(
            f"the kernel table lacks {', '.join(missing)}", where=str(path), remedy=remedy
        )
    return MappingProxyType(arrays)
