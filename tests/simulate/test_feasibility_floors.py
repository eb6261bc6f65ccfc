"""The least devices on which verl's makers ran a model: they do, and half of them do not."""

import re
from typing import Any

import pytest
from test_known_recipes import RECIPES, predict, workload_of

import planner
from planner.catalog.hardware import parse_cluster

LEAST = {recipe["id"]: recipe for recipe in RECIPES if recipe.get("least")}
# Their search is short; the others differ in what the host's memory holds.
SEARCHED = [name for name in LEAST if "72b" in name or "7b" in name or "14b" in name]


def halved(recipe: dict[str, Any]) -> dict[str, Any]:
    """The same layout on half the devices: half the data-parallel ranks, else half the tp."""
    group = parse_cluster(recipe["cluster"]).groups[0]
    nodes, per_node = group.nodes, group.devices_per_node
    size = f"{nodes // 2}x{per_node}" if nodes > 1 else f"1x{per_node // 2}"
    devices = group.devices // 2
    fields = {**recipe, "cluster": recipe["cluster"].split(":")[0] + ":" + size}
    for part in ("train", "generate"):
        tp = recipe[part].get("tp", 1)
        fields[part] = {**recipe[part], "tp": min(tp, devices)}
    return fields


def test_floors_are_there() -> None:
    assert len(LEAST) >= 7


@pytest.mark.parametrize("name", list(LEAST))
def test_the_published_layout_fits(name: str) -> None:
    assert predict(LEAST[name]).fits


@pytest.mark.parametrize("name", [name for name in LEAST if name.startswith("verl-least")])
def test_the_same_layout_on_half_the_devices_does_not_fit(name: str) -> None:
    prediction = predict(halved(LEAST[name]))
    assert prediction.calls["actor_train"].memory_verdict == "does not fit"


@pytest.mark.parametrize("name", SEARCHED)
def test_no_plan_fits_half_the_devices_and_the_published_number_is_named(name: str) -> None:
    recipe = LEAST[name]
    cluster = parse_cluster(halved(recipe)["cluster"])
    with pytest.raises(planner.InfeasibleError) as raised:
        planner.plan(workload_of(recipe), cluster, space=recipe["space"], top=1)
    named = re.search(r"It would fit on (\d+) of these devices", str(raised.value))
    assert named is not None
    assert int(named[1]) == parse_cluster(recipe["cluster"]).devices
