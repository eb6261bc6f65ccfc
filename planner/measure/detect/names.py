"""Device names as drivers, Slurm and Kubernetes write them -> ids of device profiles."""

from __future__ import annotations

import re

from planner.catalog.hardware import list_devices, load_device

# Words that must occur in the name, in this order of preference; drivers write "NVIDIA H100 80GB
# HBM3" for the SXM module and name the others ("H100 PCIe", "H100 NVL").
_NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gb300",), "gb300-nvl72"),
    (("gb200",), "gb200-nvl72"),
    (("b300",), "b300-sxm"),
    (("b200",), "b200-sxm"),
    (("h200",), "h200-141-sxm"),
    (("h100", "pcie"), "h100-80-pcie"),
    (("h100", "nvl"), "h100-94-nvl"),
    (("h100", "96"), "h100-96-hbm2e"),
    (("h100",), "h100-80-sxm"),
    (("h800",), "h800-80-sxm"),
    (("h20",), "h20-96"),
    (("a100", "40", "pcie"), "a100-40-pcie"),
    (("a100", "40"), "a100-40-sxm"),
    (("a100", "pcie"), "a100-80-pcie"),
    (("a100",), "a100-80-sxm"),
    (("a800",), "a800-80-sxm"),
    (("l40s",), "l40s-48"),
    (("rtx", "pro", "6000"), "rtx-pro-6000-server"),
    (("a6000",), "a6000-48"),
    (("4090",), "rtx4090-24"),
    (("mi355x",), "mi355x"),
    (("mi350x",), "mi350x"),
    (("mi325x",), "mi325x"),
    (("mi300x",), "mi300x"),
    (("mi250x",), "mi250x"),
)
_OTHER_SIZE = 0.15
"""Memory that differs by more than this share from the profile's is said."""


def device_of(name: str, memory_gib: float | None = None) -> str | None:
    """The device profile that a name means; None for a device without one.

    `memory_gib` tells variants of one name apart ("A100-SXM4" with 40 or 80 GiB).
    """
    # "SXM4" and "80GB" are words as a whole, and their numbers are words too.
    words = {word.lower() for word in re.findall(r"[A-Za-z]+\d*[A-Za-z]*|\d+", name)}
    words |= set(re.findall(r"\d+", name))
    if name.lower() in list_devices():
        return name.lower()
    if memory_gib is not None and 35.0 <= memory_gib <= 45.0:
        words.add("40")
    for wanted, device in _NAMES:
        if words.issuperset(wanted):
            return device
    return None


def memory_note(device: str, memory_gib: float) -> str | None:
    """What to say where the driver's memory is not the profile's."""
    known = load_device(device).memory_bytes / 2**30
    if abs(memory_gib / known - 1.0) <= _OTHER_SIZE:
        return None
    return f"the driver shows {memory_gib:.0f} GiB, the profile of {device} has {known:.0f}"
