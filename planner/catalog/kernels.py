"""Reads the files of the measured kernel tables: one compressed NumPy file a device."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.catalog.data import data_path, did_you_mean
from planner.errors import InputError

KernelArrays = Mapping[str, npt.NDArray[Any]]


def list_kernel_tables() -> list[str]:
    """Names of all kernel tables, sorted; each is the id of the device it was measured on."""
    return sorted(path.stem for path in data_path("hardware_profiles", "kernels").glob("*.npz"))


@cache
def kernel_arrays(name: str) -> KernelArrays:
    """The arrays of a kernel table's file; read once and shared, so nobody writes to them.

    Raises InputError if there is no such table or its file is broken.
    """
    path = data_path("hardware_profiles", "kernels", f"{name}.npz")
    if name not in list_kernel_tables():
        raise InputError(
            f"there is no kernel table {name!r}",
            where="kernel_table",
            remedy=did_you_mean(name, list_kernel_tables()),
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            return MappingProxyType({key: file[key] for key in file.files})
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(
            f"the kernel table cannot be read: {error}",
            where=str(path),
            remedy="Install the package again.",
        ) from None
