"""What the search proposes in a launcher's space, the launcher's exporter accepts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from launcher_cases import SEARCHES

import planner
from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import load_space
from planner.launchers import get_launcher, launchers_for


@pytest.mark.parametrize("name", SEARCHES)
def test_every_plan_of_a_launchers_space_is_exported(name: str) -> None:
    space, workload, cluster = SEARCHES[name]
    plans = planner.plan(workload, parse_cluster(cluster), space=space, deadline_s=20)
    assert plans.plans
    for plan in plans.plans:
        assert load_space(space).launcher in plan.launchers
        assert plan.launchers == launchers_for(plan, plans.workload, plans.cluster)
        for launcher in plan.launchers:
            files = get_launcher(launcher).write(plan, plans.workload, plans.cluster)
            assert any(file.endswith(".sh") for file in files)
            for file, content in files.items():
                if file.endswith(".yaml"):
                    config: dict[str, Any] = yaml.safe_load(content)
                    assert config
                    assert config.get("defaults") or launcher not in ("nemo-rl", "verl")
