"""What the placement search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["optimal", "feasible", "infeasible", "unknown", "cancelled"]


@dataclass(frozen=True)
class PlacementSolution:
    """One feasible plan: an option and a place for every unit, and the best order of the calls."""

    options: dict[str, int]
    """Index of each unit's option in `Unit`'s arrays."""
    first_device: dict[str, int]
    """Each unit's first device in its option's node group; its mesh is contiguous from there."""
    start_s: dict[str, float]
    """Start of each call, host calls included. Asynchronous: within one iteration, which may last
    up to 1 + staleness periods."""
    sync_start_s: tuple[float, ...]
    """Start of each weight sync, in the order of `PlacementProblem.syncs`."""
    step_time_s: float
    """True step time (no rounding), `fixed_s` included."""


@dataclass(frozen=True)
class Shortage:
    """The smallest shortage that makes a problem infeasible."""

    units: tuple[str, ...]
    """The units that do not fit, alone or together."""
    group: int | None
    """Node group where the shortage is smallest, or None if no group has an option at all."""
    devices: int
    """Devices of the mesh where it is smallest (0: not about one mesh)."""
    call: str | None
    """Call whose peak does not fit, if it is device memory that is short."""
    kind: Literal["device memory", "host memory", "devices", "options"]
    short_bytes: float
    """Bytes missing on each device (device memory) or node (host memory); 0 for the other kinds."""
    short_devices: int
    """Devices missing; 0 unless `kind` is "devices"."""


@dataclass(frozen=True)
class PlacementResult:
    """The best plans found, and what is proven about them."""

    solutions: tuple[PlacementSolution, ...]
    """Best first; no two alike in sizes, residency, and which meshes share devices."""
    bound_s: float
    """No plan of the problem takes less, in true seconds (`fixed_s` included); inf if there is
    none."""
    optimal: bool
    """The best plan is proven to be within the requested gap of the bound."""
    status: Status
    """"optimal" (within the gap), "feasible" (stopped before the proof), "infeasible" (proven),
    "unknown" (stopped before a plan or a proof was found), "cancelled" (by the caller)."""
    wall_s: float
    message: str
    """What happened, in a sentence; for an infeasible problem what does not fit and by how much."""
    shortage: Shortage | None = None
    method: str = ""
    """How the proof was obtained: "bound", "chain", "pools", or "cp-sat"."""

    @property
    def gap(self) -> float:
        """1 - bound / best; 0 when proven exactly, nan without a solution."""
        if not self.solutions:
            return float("nan")
        best = self.solutions[0].step_time_s
        return max(0.0, 1.0 - self.bound_s / best) if best > 0 else 0.0
