"""Which profile prices the software that ran a measured case."""

from __future__ import annotations

from typing import Any

from planner.schema import DeviceProfile

# Megatron-Bridge's stack for experts by host and first release, newest first.
_BRIDGE = {
    "grace": (
        ((26, 6), "megatron-bridge-26.06-grace"),
        ((25, 11), "megatron-bridge-25.11-grace"),
    ),
    "x86": (((26, 4), "megatron-bridge-26.04"),),
}


def training_profile(setup: dict[str, Any], device: DeviceProfile) -> str:
    """Profile for a training framework, its release and the device's generation.

    Software that was never measured gets "generic", whose interval is wider.
    """
    framework = setup["framework"]
    if framework == "megatron-bridge":
        stacks = _BRIDGE.get(device.host, ())
        return next((name for first, name in stacks if _release(setup) >= first), framework)
    if (
        framework in ("megatron-deepspeed", "megatron-lm")
        and setup["attention_kernel"] == "unfused"
    ):
        return f"{framework}-2022"
    if framework == "llm-foundry":
        hopper = "fp8" in device.peak_flop_per_s
        return "llm-foundry-hopper" if hopper else "llm-foundry-ampere"
    if framework == "torchtitan":
        return "torchtitan" if setup["elementwise"] == "compiled" else "torchtitan-eager"
    if framework == "prime-rl":
        return "prime-rl-flash2" if "flash2" in setup["attention_kernel"] else "prime-rl"
    return _OTHERS.get(framework, "generic")


_OTHERS = {
    "internevo": "internevo",
    "megatron-deepspeed": "megatron",
    "megatron-lm": "megatron",
    "nemo": "megatron",
    "deepspeed": "deepspeed",
}


def _release(setup: dict[str, Any]) -> tuple[int, ...]:
    """ "26.04.01" as (26, 4, 1); nothing stated counts as the oldest."""
    text = setup.get("release") or "0"
    return tuple(int(part) for part in text.split("."))
