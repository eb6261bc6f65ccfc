"""Device profiles in SI units, and clusters from short names and from YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.data import data_path, load_yaml
from planner.catalog.frameworks import list_frameworks, load_framework
from planner.catalog.hardware import (
    cluster_from,
    list_clusters,
    list_devices,
    load_device,
    parse_cluster,
)
from planner.catalog.kernels import list_kernel_tables
from planner.errors import InputError
from planner.schema.hardware import MAX_NODES

CLUSTERS = ["a100", "a800", "b200", "b300", "gb200-nvl72", "gb300-nvl72"]
CLUSTERS += ["h100", "h20", "h200", "h800", "l40s", "mi300x"]


def test_all_devices_and_clusters_are_there() -> None:
    assert len(list_devices()) == 36
    assert list_clusters() == sorted(CLUSTERS)


@pytest.mark.parametrize("device_id", list_devices())
def test_a_profile_converts_its_units_once(device_id: str) -> None:
    raw = load_yaml(data_path("hardware_profiles", "devices", f"{device_id}.yaml"))
    device = load_device(device_id)
    assert device.peak_flop_per_s == {
        dtype: pytest.approx(peak * 1e12) for dtype, peak in raw["peak_tflops"].items()
    }
    assert device.memory_bytes == pytest.approx(raw["memory_gib"] * 2**30, abs=1)
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(raw["memory_bandwidth_tb_s"] * 1e12)
    for link in ("scale_up", "scale_out", "host_link"):
        si = getattr(device, f"{link}_bandwidth_bytes_per_s")
        assert si == pytest.approx(raw[f"{link}_bandwidth_gb_s"] * 1e9)
    assert device.kernel_latency_s == pytest.approx(raw["kernel_latency_us"] * 1e-6)
    assert device.sources


@pytest.mark.parametrize("device_id", list_devices())
def test_a_profile_names_a_kernel_table_that_exists(device_id: str) -> None:
    device = load_device(device_id)
    assert device.kernel_table in list_kernel_tables()
    assert device.kernel_table_is_own or device.kernel_table != device.id
    if device.collective_table is not None:
        assert device.collective_table in list_kernel_tables()


def test_known_figures() -> None:
    h100 = load_device("h100-80-sxm")
    assert h100.memory_bytes == pytest.approx(85.47e9, rel=1e-3)
    assert h100.peak_flop_per_s["bf16"] == 989e12
    assert h100.price_usd_per_hour == pytest.approx((1.99 + 5.00) / 2)
    assert "fp8" not in load_device("a100-80-sxm").peak_flop_per_s
    assert load_device("b200-sxm").price_usd_per_hour is None
    assert load_device("gb200-nvl72").host == "grace"


def test_a_short_name_gives_nodes_devices_and_assumptions() -> None:
    cluster = parse_cluster("h100:4x8")
    (group,) = cluster.groups
    assert (group.name, group.nodes, group.devices_per_node, cluster.devices) == ("h100", 4, 8, 32)
    assert group.device == load_device("h100-80-sxm")
    assert group.host_memory_bytes == 2048 * 2**30
    assert "price of h100-80-sxm: 3.50 USD/h, middle of 1.99-5.00" in cluster.assumptions
    assert any("50 GB/s per device" in text for text in cluster.assumptions)


def test_a_device_id_is_a_cluster_name_too() -> None:
    (group,) = parse_cluster(" RTX4090-24:1X4 ").groups
    assert group.device.id == "rtx4090-24"
    assert group.host_memory_bytes == 256 * 2**30


def test_small_nodes_are_boxes_of_their_own_but_racks_span_nodes() -> None:
    assert parse_cluster("h100:8x2").groups[0].device.scale_up_domain_devices == 2
    assert parse_cluster("gb200-nvl72:36x4").groups[0].device.scale_up_domain_devices == 72


def test_heterogeneous_clusters_have_one_group_a_part() -> None:
    cluster = parse_cluster("h100:4x8+a100:16x8 + h100:1x8")
    assert [group.name for group in cluster.groups] == ["h100", "a100", "h100-2"]
    assert cluster.devices == 32 + 128 + 8
    assert len(set(cluster.assumptions)) == len(cluster.assumptions)


@given(
    st.sampled_from([*CLUSTERS, "mi355x", "tpu-v5p"]),
    st.integers(1, MAX_NODES),
    st.sampled_from([1, 2, 4]),
)
def test_any_size_in_range_is_accepted(name: str, nodes: int, devices: int) -> None:
    assert parse_cluster(f"{name}:{nodes}x{devices}").devices == nodes * devices


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("h100", "Write NAME:NODESxDEVICES"),
        ("h100:4", "Write NAME:NODESxDEVICES"),
        ("", "Write NAME:NODESxDEVICES"),
        ("h100:4x8+", "Write NAME:NODESxDEVICES"),
        ("h101:4x8", "Did you mean h100"),
        ("h1o0", "Did you mean h100"),
        ("h100:0x8", "nodes must be between 1 and 100,000, given 0"),
        ("h100:-3x8", "given -3"),
        ("h100:100001x8", "given 100,001"),
        ("h100:fourx8", "nodes must be a whole number, given 'four'"),
        ("h100:4x8x2", "devices per node must be a whole number"),
        ("h100:1.5x8", "given '1.5'"),
        ("h100:4x0", "between 1 and 8 devices, given 0"),
        ("h100:2x16", "Write 4x8 for as many devices"),
        ("gb200-nvl72:1x73", "between 1 and 72 devices"),
        ("h100:99999999999999999999x8", "whole number"),
        ("h100:1x\uff18", "devices per node must be a whole number"),
        ("h100:\u0664x8", "nodes must be a whole number"),
        ("h100:1x8+" * 1000, "the text has 9,000 characters, at most 200 are read"),
        ("missing.yaml", "no such file"),
    ],
)
def test_wrong_sizes_and_names_say_what_is_right(text: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert part in str(caught.value)


CUSTOM = """
name: mixed
groups:
  - name: train
    nodes: 4
    devices_per_node: 8
    device: h100
    price_usd_per_device_hour: 2.2
    host_memory_gib: 1024
  - nodes: 2
    device: {base: h20-96, memory_gib: 141, memory_bandwidth_tb_s: 4.8, peak_tflops: {bf16: 150}}
  - name: narrow
    nodes: 2
    device: {base: l40s, id: l40s-slow-network, scale_out_bandwidth_gb_s: 12.5}
"""


def test_a_yaml_cluster_takes_names_overrides_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CUSTOM)
    cluster = parse_cluster(path)
    assert cluster == parse_cluster(str(path))
    train, big, narrow = cluster.groups
    assert cluster.name == "mixed"
    assert train.price_usd_per_device_hour == 2.2
    assert train.host_memory_bytes == 1024 * 2**30
    assert big.devices_per_node == 8
    assert big.device.id == "h20-96-custom"
    assert big.device.memory_bytes == 141 * 2**30
    assert big.device.peak_flop_per_s == {"bf16": 150e12, "fp8": 296e12}
    assert narrow.device.scale_out_bandwidth_bytes_per_s == 12.5e9
    assert not any("h100-80-sxm: 3.50" in text for text in cluster.assumptions)


def test_changing_what_was_measured_disowns_the_kernel_table(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("groups: [{nodes: 1, device: {base: h100, memory_bandwidth_tb_s: 3.0}}]")
    assert not parse_cluster(path).groups[0].device.kernel_table_is_own
    path.write_text("groups: [{nodes: 1, device: {base: h100, memory_gib: 94}}]")
    assert parse_cluster(path).groups[0].device.kernel_table_is_own


def test_a_device_may_be_given_in_full(tmp_path: Path) -> None:
    device = load_yaml(data_path("hardware_profiles", "devices", "h100-80-sxm.yaml"))
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"groups": [{"nodes": 1, "device": {**device, "id": "mine"}}]}))
    assert parse_cluster(path).groups[0].device.id == "mine"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("groups: []", "has no group"),
        ("groups: [{nodes: 1, device: h10O}]", "Did you mean"),
        ("groups: [{nodes: 0, device: h100}]", "groups[0]: nodes must be between"),
        ("groups: [{nodes: 1, device: {base: zzz}}]", "groups[0]: device.base"),
        ("groups: [{nodes: 1, device: {base: h100, memory_gb: 80}}]", "Did you mean memory_gib"),
        (
            "groups: [{nodes: 1, device: {base: h100, memory_gib: -1}}]",
            "equal to 0.25",
        ),
        ("groups: [{nodes: 1, device: {base: 5}}]", "base must be a device id"),
        ("groups: [{nods: 1, device: h100}]", "Did you mean nodes"),
        ("groups: [{nodes: 1.5, device: h100}]", "valid integer"),
        ("- h100", "should be an object"),
        (f"groups: [{{nodes: {'9' * 400}, device: h100}}]", "groups[0].nodes: should be less"),
        ('name: "a\\nb"\ngroups: [{nodes: 1, device: h100}]', "name: holds a control"),
        ("groups: [{nodes: 1, device: h100, host_memory_gib: 1e300}]", "groups[0].host_memory_gib"),
        (
            "groups: [{nodes: 1, device: h100, price_usd_per_device_hour: 1e308}]",
            "groups[0].price_usd_per_device_hour",
        ),
        (
            "groups: [{nodes: 1, devices_per_node: 72, device: {base: gb200-nvl72, "
            "typical_node: {devices: 1, host_memory_gib: 1048576}}}]",
            "groups[0]: host_memory_bytes",
        ),
        (
            "groups: [{name: a, nodes: 1, device: h100}, {name: a, nodes: 1, device: h100}]",
            "'a' occurs twice",
        ),
    ],
)
def test_wrong_yaml_names_the_field(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        parse_cluster(path)
    assert part in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("memory_gib", 0.25, 2**14),
        ("memory_bandwidth_tb_s", 1e-3, 1e3),
        ("scale_up_bandwidth_gb_s", 1e-3, 1e5),
        ("scale_out_bandwidth_gb_s", 1e-3, 1e5),
        ("host_link_bandwidth_gb_s", 1e-3, 1e5),
        ("scale_up_domain_devices", 1, 100_000),
        ("tdp_w", 1, 1e5),
        ("price_usd_per_hour", 1e-4, 1e4),
        ("memory_efficiency", 0.01, 1),
        ("scale_up_efficiency", 0.01, 1),
        ("scale_out_efficiency", 0.01, 1),
        ("kernel_latency_us", 0, 1e6),
        ("scale_up_latency_us", 0, 1e6),
        ("scale_out_latency_us", 0, 1e6),
        ("peak_tflops", 1e-3, 1e6),
    ],
)
def test_a_device_stays_within_plausible_bounds(field: str, low: float, high: float) -> None:
    def group(value: object) -> dict[str, object]:
        wrapped = {"bf16": value} if field == "peak_tflops" else value
        device = {"base": "h100", field: wrapped}
        return {"groups": [{"nodes": 1, "devices_per_node": 1, "device": device}]}

    for value in (low, high):
        assert cluster_from(group(value), "c.yaml", "c").devices == 1
    for wrong in (1e300, -1, 10**400, high * 1.01 if field != "scale_up_domain_devices" else 10**6):
        with pytest.raises(InputError, match=rf"^c\.yaml: groups\[0\]: device: {field}"):
            cluster_from(group(wrong), "c.yaml", "c")
    if low > 0:
        for wrong in (0, 1e-300, low * 0.99 if field != "scale_up_domain_devices" else 0):
            with pytest.raises(InputError, match=rf"^c\.yaml: groups\[0\]: device: {field}"):
                cluster_from(group(wrong), "c.yaml", "c")


def test_line_breaks_between_parts_do_not_reach_the_name() -> None:
    assert parse_cluster("h100:1x8 +\n h200:1x8").name == "h100:1x8 + h200:1x8"


def test_frameworks_load_by_name() -> None:
    assert list_frameworks()
    for name in list_frameworks():
        assert load_framework(name).name == name
    with pytest.raises(InputError, match="no framework profile"):
        load_framework("no-such-framework")
