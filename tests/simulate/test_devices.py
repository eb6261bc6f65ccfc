"""Devices that an assignment uses, counted on ranges, against the sets of devices themselves."""

from hypothesis import given
from hypothesis import strategies as st

from planner.schema import Assignment, Mesh
from planner.simulate.evaluate import used_devices


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    group = draw(st.sampled_from(["a", "b"]))
    first_node = draw(st.integers(0, 5))
    if draw(st.booleans()):
        nodes = draw(st.integers(1, 6))
        return Mesh(group=group, first_node=first_node, nodes=nodes, devices_per_node=8)
    size = draw(st.sampled_from([1, 2, 4]))
    first = size * draw(st.integers(0, 8 // size - 1))
    return Mesh(
        group=group, first_node=first_node, nodes=1, first_device=first, devices_per_node=size
    )


@given(st.lists(meshes(), min_size=1, max_size=6))
def test_used_devices_is_the_size_of_the_union(some: list[Mesh]) -> None:
    devices = {
        (mesh.group, node, device)
        for mesh in some
        for node in range(mesh.first_node, mesh.first_node + mesh.nodes)
        for device in range(mesh.first_device, mesh.first_device + mesh.devices_per_node)
    }
    assignment = Assignment(
        meshes={f"call {i}": mesh for i, mesh in enumerate(some)},
        strategies={},
        framework="generic",
        engine="vllm",
    )
    assert used_devices(assignment) == len(devices)
