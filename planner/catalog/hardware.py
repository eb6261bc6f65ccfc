"""Device profiles and clusters: reads YAML in datasheet units, answers schema types in SI."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.data import build, data_path, did_you_mean, load_yaml, validate
from planner.catalog.hardware_files import (
    GIB,
    ClusterFile,
    ClusterPreset,
    DeviceFile,
    GroupFile,
)
from planner.catalog.kernels import kernel_arrays
from planner.errors import InputError
from planner.schema import Cluster, DeviceProfile, NodeGroup
from planner.schema.hardware import MAX_NODES

_MAX_TEXT = 200  # characters of a cluster text, as of every name
_MAX_WHERE = 60
_FORM = "Write NAME:NODESxDEVICES, for example h100:4x8 (4 nodes of 8 devices)."
# Overrides of these leave the measured kernel table valid; any other changes what it measured.
_KEEPS_TABLE = frozenset(
    {"base", "id", "memory_gib", "tdp_w", "price_usd_per_hour", "sources", "typical_node"}
    | {"scale_out_bandwidth_gb_s", "scale_out_latency_us", "scale_out_efficiency"}
    | {"host", "host_link_bandwidth_gb_s"}
)


def list_devices() -> list[str]:
    """Ids of all device profiles, sorted."""
    return _names("devices")


def list_clusters() -> list[str]:
    """Names of all built-in cluster types, sorted; device ids are accepted besides."""
    return _names("clusters")


def describe_cluster(name: str) -> dict[str, Any]:
    """What a built-in cluster type stands for, to be shown: the device, the usual node and network,
    the price with where it comes from. InputError with near names if there is none.
    """
    preset = _preset(name)
    if preset is None:
        raise _unknown(name, None)
    device = device_file(preset.device)
    return {
        "cluster": name,
        **preset.model_dump(mode="json", exclude={"sources"}),
        "price_usd_per_device_hour": device.price,
        "price_source": device.price_text,
        "sources": [*preset.sources, *(f"{device.id}: {source}" for source in device.sources)],
    }


@cache
def load_device(device_id: str) -> DeviceProfile:
    """The profile of a device id; InputError with near names if there is none."""
    return device_file(device_id).profile()


def parse_cluster(reference: str | Path) -> Cluster:
    """A cluster from ``NAME:NODESxDEVICES`` (several joined by ``+``) or from a YAML file.

    NAME is a built-in cluster type or a device id. A path, or text that ends in .yaml, .yml or
    .json, is read as a file. Raises InputError saying what was given and what would be right.
    """
    if isinstance(reference, Path):
        return _read_cluster(reference)
    text = reference.strip()
    if text.lower().endswith((".yaml", ".yml", ".json")):
        return _read_cluster(Path(text))
    return _parse_short(text)


def _parse_short(text: str) -> Cluster:
    where = f"cluster {text if len(text) <= _MAX_WHERE else text[:_MAX_WHERE] + '...'!r}"
    if len(text) > _MAX_TEXT:
        raise InputError(
            f"the text has {len(text):,} characters, at most {_MAX_TEXT} are read",
            where=where,
            remedy="Describe the cluster in a YAML file.",
        )
    groups: list[NodeGroup] = []
    assumptions: list[str] = []
    for part in text.split("+"):
        match = re.fullmatch(r"\s*([^:]+?)\s*:\s*([^x×]*?)\s*[x×]\s*(.*?)\s*", part, re.IGNORECASE)
        if match is None:
            name = part.split(":")[0].strip().lower()
            if not name or name in list_clusters() or name in list_devices():
                raise InputError("the size is missing or unclear", where=where, remedy=_FORM)
            raise _unknown(name, where)
        name = match[1] if _is_file(match[1]) else match[1].lower()
        label = Path(name).stem[:_MAX_TEXT] if _is_file(name) else name
        group = GroupFile(
            name=_unique(label, [group.name for group in groups]),
            nodes=_whole_number(match[2], "nodes", where),
            devices_per_node=_whole_number(match[3], "devices per node", where),
            device=name,
        )
        _add_group(group, where, groups, assumptions)
    # Spaces may be line breaks, which a name cannot hold.
    return _cluster(" ".join(text.split()), groups, assumptions, where)


def cluster_from(content: Any, where: str, name: str, folder: Path = Path()) -> Cluster:
    """A cluster from the content of a cluster file; `name` unless the content names it.

    Devices may be files of their own, with paths relative to `folder`. Raises InputError naming
    `where` and the field.
    """
    if isinstance(content, dict) and content.get("name") is None:
        content = {**content, "name": name}
    file = validate(ClusterFile, content, where)
    groups: list[NodeGroup] = []
    assumptions: list[str] = []
    for index, group in enumerate(file.groups):
        place = f"{where}: groups[{index}]"
        if isinstance(group.device, str) and _is_file(group.device):
            group = group.model_copy(update={"device": str(folder / group.device)})
        if group.name is None:
            label = group.device if isinstance(group.device, str) else f"group{index}"
            label = Path(label).stem[:_MAX_TEXT] if _is_file(label) else label
            group = group.model_copy(update={"name": _unique(label, [g.name for g in groups])})
        elif group.name in [other.name for other in groups]:
            raise InputError(
                f"the group name {group.name!r} occurs twice",
                where=place,
                remedy="Give each group its own name.",
            )
        _add_group(group, place, groups, assumptions)
    if not groups:
        raise InputError(
            "the cluster has no group", where=f"{where}: groups", remedy="Add a node group."
        )
    return _cluster(file.name or name, groups, assumptions, where)


def _read_cluster(path: Path) -> Cluster:
    return cluster_from(load_yaml(path), str(path), path.stem[:_MAX_TEXT], path.parent)


def _cluster(name: str, groups: list[NodeGroup], assumptions: list[str], where: str) -> Cluster:
    once = tuple(dict.fromkeys(assumptions))
    return build(Cluster, where, name=name, groups=tuple(groups), assumptions=once)


def _add_group(
    group: GroupFile, where: str, groups: list[NodeGroup], assumptions: list[str]
) -> None:
    """Append the group, and what was assumed about it."""
    preset = _preset(group.device) if isinstance(group.device, str) else None
    if isinstance(group.device, str) and _is_file(group.device):
        device = read_device_file(Path(group.device))
    elif isinstance(group.device, str):
        device = device_file(preset.device if preset else group.device, f"{where}: device")
    else:
        device = _inline_device(group.device, f"{where}: device")
    node_devices = preset.devices_per_node if preset else device.typical_node.devices
    node_memory = preset.host_memory_gib if preset else device.typical_node.host_memory_gib
    devices_per_node = group.devices_per_node
    if devices_per_node is None:
        devices_per_node = node_devices
        assumptions.append(f"devices per node of {group.name}: {node_devices}, the usual server")
    _check_size(group.nodes, devices_per_node, device, where)

    host_memory_gib = group.host_memory_gib
    if host_memory_gib is None:
        host_memory_gib = node_memory * devices_per_node / node_devices
        share = devices_per_node != node_devices
        usual = f", of {node_memory:.0f} GiB for {node_devices} devices" if share else ""
        assumptions.append(
            f"host memory of {group.name}: {host_memory_gib:.0f} GiB per node, a usual server's"
            f"{usual}"
        )
    if group.nodes * devices_per_node > max(devices_per_node, device.scale_up_domain_devices):
        network = f" ({preset.network})" if preset else ""
        assumptions.append(
            f"network of {group.name}: {device.scale_out_bandwidth_gb_s:g} GB/s per device and "
            f"direction between {'racks' if device.domain_spans_nodes else 'nodes'}{network}"
        )
    if group.price_usd_per_device_hour is None:
        assumptions.append(device.price_text)
    if not device.kernel_table_is_own:
        assumptions.append(
            f"kernel times of {device.id}: efficiencies measured on {device.kernel_table}, scaled"
        )
    profile = device.profile()
    if not device.domain_spans_nodes:
        # Nodes with fewer devices than the usual server are separate boxes, not parts of one.
        domain = min(profile.scale_up_domain_devices, devices_per_node)
        profile = profile.model_copy(update={"scale_up_domain_devices": domain})
    groups.append(
        build(
            NodeGroup,
            where,
            name=group.name or device.id,
            nodes=group.nodes,
            devices_per_node=devices_per_node,
            device=profile,
            host_memory_bytes=round(host_memory_gib * GIB),
            price_usd_per_device_hour=group.price_usd_per_device_hour,
        )
    )


def read_device_file(path: Path) -> DeviceFile:
    """A device from a file of the user's, as `rlmplan measure` writes it.

    Tables that end in .npz are files beside it. Raises InputError naming the file and the field.
    """
    device = validate(DeviceFile, load_yaml(path), str(path))
    tables = {
        field: str((path.parent / name).resolve())
        for field in ("kernel_table", "collective_table")
        if (name := getattr(device, field)) and name.endswith(".npz")
    }
    for table in tables.values():
        kernel_arrays(table)
    return validate(DeviceFile, {**device.model_dump(mode="json"), **tables}, str(path))


def _is_file(device: str) -> bool:
    return device.lower().endswith((".yaml", ".yml"))


def _inline_device(mapping: dict[str, Any], where: str) -> DeviceFile:
    """A device given in full, or as ``base: ID`` with the keys that differ."""
    if "base" not in mapping:
        return validate(DeviceFile, mapping, where)
    base_id = mapping["base"]
    if not isinstance(base_id, str):
        raise InputError(
            f"base must be a device id, given {base_id!r}", where=f"{where}.base", remedy=None
        )
    preset = _preset(base_id)
    base = device_file(preset.device if preset else base_id, f"{where}.base")
    merged = base.model_dump(mode="json")
    for key, value in mapping.items():
        if key == "peak_tflops" and isinstance(value, dict):
            merged[key] = {**merged[key], **value}
        elif key != "base":
            merged[key] = value
    merged.setdefault("id", base.id)
    if "id" not in mapping:
        merged["id"] = f"{base.id}-custom"
    if "kernel_table_is_own" not in mapping and set(mapping) - _KEEPS_TABLE:
        merged["kernel_table_is_own"] = False
    return validate(DeviceFile, merged, where)


def _check_size(nodes: int, devices_per_node: int, device: DeviceFile, where: str) -> None:
    if not 1 <= nodes <= MAX_NODES:
        raise InputError(
            f"nodes must be between 1 and {MAX_NODES:,}, given {nodes:,}",
            where=where,
            remedy="Correct the number of nodes.",
        )
    most = max(device.scale_up_domain_devices, device.typical_node.devices)
    if not 1 <= devices_per_node <= most:
        usual = device.typical_node.devices
        remedy = f"A usual node has {usual} of them."
        if devices_per_node > most and devices_per_node % usual == 0:
            remedy = f"Write {nodes * devices_per_node // usual}x{usual} for as many devices."
        raise InputError(
            f"a node of {device.id} has between 1 and {most:,} devices, given {devices_per_node:,}",
            where=where,
            remedy=remedy,
        )


def _whole_number(text: str, what: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text):
        raise InputError(
            f"{what} must be a whole number, given {text!r}", where=where, remedy=_FORM
        )
    return int(text)


def _unique(name: str, taken: list[str]) -> str:
    """`name`, with a number appended if it is taken."""
    count = 2
    unique = name
    while unique in taken:
        unique = f"{name}-{count}"
        count += 1
    return unique


def _unknown(name: str, where: str | None) -> InputError:
    known = {*list_clusters(), *list_devices()}
    return InputError(
        f"there is no cluster type or device {name!r}",
        where=where,
        remedy=did_you_mean(name, known),
    )


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in data_path("hardware_profiles", folder).glob("*.yaml"))


@cache
def _preset(name: str) -> ClusterPreset | None:
    """The built-in cluster type `name`, or None."""
    if name not in list_clusters():
        return None
    path = data_path("hardware_profiles", "clusters", f"{name}.yaml")
    return validate(ClusterPreset, load_yaml(path), str(path))


def device_file(device_id: str, where: str | None = None) -> DeviceFile:
    """The shipped file of a device id; InputError with near names if there is none."""
    if device_id not in list_devices():
        raise _unknown(device_id, where)
    return _read_device(device_id)


@cache
def _read_device(device_id: str) -> DeviceFile:
    path = data_path("hardware_profiles", "devices", f"{device_id}.yaml")
    device = validate(DeviceFile, load_yaml(path), str(path))
    if device.id != device_id:
        raise InputError(
            f"the id {device.id!r} differs from the file name", where=str(path), remedy=None
        )
    return device
