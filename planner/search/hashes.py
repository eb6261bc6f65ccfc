"""SHA-256 of everything that a plan depends on."""

from __future__ import annotations

import hashlib
import json

from planner.catalog.kernels import kernel_table_path
from planner.schema import Schema, SearchSpace
from planner.simulate.instance import Instance


def input_hashes(instance: Instance, space: SearchSpace) -> dict[str, str]:
    """Name of each input -> hexadecimal SHA-256."""
    records: dict[str, Schema] = {
        "workload": instance.workload,
        "cluster": instance.cluster,
        "space": space,
        f"framework:{instance.framework.name}": instance.framework,
        f"engine:{instance.engine.name}": instance.engine,
    }
    hashes = {name: _digest(_text(record).encode()) for name, record in records.items()}
    for table in sorted({group.device.kernel_table for group in instance.cluster.groups}):
        path = kernel_table_path(table)
        hashes[f"kernels:{path.stem}"] = _digest(path.read_bytes())
    return hashes


def _text(record: Schema) -> str:
    """JSON that does not depend on the order in which roles or fields were given."""
    return json.dumps(record.model_dump(mode="json"), sort_keys=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
