"""The placement problem in the search's own terms.

*Events* are what takes time: device calls, host calls, weight syncs, in this order. *Meshes* are
what takes devices: units that must share all their devices form one mesh. Two meshes either share
devices or are disjoint; which, is a *relation* of the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from planner.search.problem import PlacementProblem, Unit
from planner.simulate.makespan import reachable

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Pair = tuple[int, int]
Key = tuple[int, int]
"""(group, devices) of a mesh."""


@dataclass(frozen=True)
class Options:
    """Options of one unit that could run alone; n of them, c calls."""

    origin: IntArray
    """Index in the unit's own arrays, ascending; shape [n]."""
    group: IntArray
    devices: IntArray
    time_s: FloatArray
    """Shape [n, c]."""
    resident_bytes: FloatArray
    extra_bytes: FloatArray
    """Largest peak of the unit's calls less what it keeps resident, at least 0; shape [n]."""
    host_bytes_per_node: FloatArray

    def __len__(self) -> int:
        return len(self.origin)

    def take(self, rows: npt.ArrayLike) -> Options:
        """The rows that an index array or a mask selects."""
        index = np.asarray(rows)
        return Options(**{name: value[index] for name, value in vars(self).items()})

    def key(self, row: int) -> Key:
        """Group and number of devices of a row."""
        return int(self.group[row]), int(self.devices[row])


@dataclass(frozen=True)
class Sync:
    """A weight sync between the meshes of a trainer and an engine."""

    trainer: int
    engine: int
    shared_s: float
    disjoint_s: float


@dataclass(frozen=True)
class Instance:
    """A compiled placement problem; immutable, shared by all parts of the search."""

    units: tuple[str, ...]
    options: tuple[Options, ...]
    """Options of each unit."""
    meshes: tuple[tuple[int, ...], ...]
    """Units of each mesh."""
    mesh_of: tuple[int, ...]
    apart: frozenset[Pair]
    """Pairs of meshes (a < b) that must have no device in common."""
    events: tuple[str, ...]
    """Names of device calls, host calls, and syncs."""
    n_calls: int
    """Device calls: events 0 .. n_calls - 1."""
    call_unit: tuple[int, ...]
    call_column: tuple[int, ...]
    """Column of each device call in its unit's `time_s`."""
    host_s: tuple[float, ...]
    syncs: tuple[Sync, ...]
    arcs: tuple[Pair, ...]
    """Precedences between events, those of the syncs included."""
    after: tuple[int, ...]
    """Bit mask of the events after each event, transitively."""
    event_meshes: tuple[frozenset[int], ...]
    """Meshes whose devices each event occupies."""
    group_devices: tuple[int, ...]
    group_devices_per_node: tuple[int, ...]
    group_memory_bytes: tuple[float, ...]
    group_host_bytes: tuple[float, ...]
    fixed_s: float
    staleness: int

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of meshes, in the order of the bits of a relation mask."""
        return tuple(combinations(range(len(self.meshes)), 2))

    def ordered(self, a: int, b: int) -> bool:
        """Whether the data dependencies order the two events."""
        return bool(self.after[a] >> b & 1 or self.after[b] >> a & 1)

    def align(self, key: Key, start: int) -> int:
        """Smallest legal first device >= `start`: a multiple of the node size, or for a mesh
        inside one node a multiple of its own size from the node's beginning."""
        per_node = self.group_devices_per_node[key[0]]
        node, inside = divmod(start, per_node)
        if key[1] >= per_node:
            return (node + (inside > 0)) * per_node
        inside = -(-inside // key[1]) * key[1]
        if inside + key[1] > per_node:
            return (node + 1) * per_node
        return node * per_node + inside

    def with_options(self, options: Sequence[Options]) -> Instance:
        """The same problem with other (fewer) options."""
        return replace(self, options=tuple(options))

    def keys(self, unit: int) -> set[Key]:
        """Groups and sizes that the unit has options for."""
        rows = self.options[unit]
        return set(zip(rows.group.tolist(), rows.devices.tolist(), strict=True))

    def origins(self, choice: Sequence[int]) -> tuple[int, ...]:
        """Indices into the problem's own arrays of the options in the given rows."""
        return tuple(
            int(options.origin[row]) for options, row in zip(self.options, choice, strict=True)
        )

    def rows(self, origins: Sequence[int]) -> list[int]:
        """Rows of the options with these indices in the problem's own arrays.

        Raises ValueError if one of them is not an option of this instance.
        """
        choice = []
        for options, origin in zip(self.options, origins, strict=True):
            row = int(np.searchsorted(options.origin, origin))
            if row == len(options) or options.origin[row] != origin:
                raise ValueError(f"option {origin} is not among the options")
            choice.append(row)
        return choice

    def has(self, origins: Sequence[int]) -> bool:
        """Whether the options with these indices in the problem's own arrays are all here."""
        return all(
            origin in options.origin for options, origin in zip(self.options, origins, strict=True)
        )

    def durations(self, choice: Sequence[int], disjoint: int) -> list[float]:
        """Durations of all events.

        `choice` is the row of each unit's option; `disjoint` the mask of disjoint pairs of meshes.
        """
        result = [
            float(self.options[unit].time_s[choice[unit], column])
            for unit, column in zip(self.call_unit, self.call_column, strict=True)
        ]
        result.extend(self.host_s)
        result.extend(
            sync.disjoint_s
            if self.is_disjoint(disjoint, sync.trainer, sync.engine)
            else sync.shared_s
            for sync in self.syncs
        )
        return result

    def bit(self, a: int, b: int) -> int:
        """Bit of a pair of different meshes in a relation mask."""
        return 1 << self.pairs.index((min(a, b), max(a, b)))

    def is_disjoint(self, disjoint: int, a: int, b: int) -> bool:
        """Whether meshes a and b are disjoint under a relation mask."""
        return a != b and bool(disjoint & self.bit(a, b))


def compile_instance(problem: PlacementProblem) -> Instance:
    """Index the problem and drop the options that could not run even alone.

    Raises ValueError if the problem refers to a unit or call that it does not define, or its
    precedence has a cycle. A unit may be left without options: then no plan exists.
    """
    units = {unit.name: i for i, unit in enumerate(problem.units)}
    meshes, mesh_of = _meshes(problem, units)
    calls = [
        (u, c, name) for u, unit in enumerate(problem.units) for c, name in enumerate(unit.calls)
    ]
    hosts = list(problem.host_calls_s)
    events = [name for _, _, name in calls] + hosts
    if len(set(events)) != len(events):
        raise ValueError(f"a call is defined twice: {sorted(events)}")
    index = {name: i for i, name in enumerate(events)}
    arcs = [(index[_known(a, index)], index[_known(b, index)]) for a, b in problem.edges]
    event_meshes = [frozenset({mesh_of[u]}) for u, _, _ in calls] + [frozenset()] * len(hosts)
    syncs = []
    for number, sync in enumerate(problem.syncs):
        pair = (
            mesh_of[units[_known(sync.trainer, units)]],
            mesh_of[units[_known(sync.engine, units)]],
        )
        syncs.append(Sync(*pair, float(sync.shared_s), float(sync.disjoint_s)))
        _known(sync.before_call, index)
        arcs.append((index[_known(sync.after_call, index)], len(events)))
        if sync.same_iteration:
            arcs.append((len(events), index[sync.before_call]))
        events.append(f"sync {number}")
        event_meshes.append(frozenset(pair))
    apart = frozenset(
        (min(p), max(p))
        for p in (
            (mesh_of[units[_known(a, units)]], mesh_of[units[_known(b, units)]])
            for a, b in problem.must_be_disjoint
        )
    )
    options = [_runnable(problem, unit) for unit in problem.units]
    instance = Instance(
        units=tuple(units),
        options=tuple(options),
        meshes=meshes,
        mesh_of=mesh_of,
        apart=apart,
        events=tuple(events),
        n_calls=len(calls),
        call_unit=tuple(u for u, _, _ in calls),
        call_column=tuple(c for _, c, _ in calls),
        host_s=tuple(float(problem.host_calls_s[name]) for name in hosts),
        syncs=tuple(syncs),
        arcs=tuple(arcs),
        after=tuple(reachable(len(events), arcs)),
        event_meshes=tuple(event_meshes),
        group_devices=problem.group_devices,
        group_devices_per_node=problem.group_devices_per_node,
        group_memory_bytes=problem.group_memory_bytes,
        group_host_bytes=problem.group_host_memory_bytes,
        fixed_s=float(problem.fixed_s),
        staleness=int(problem.staleness),
    )
    return _same_keys(instance)


def _known(name: str, index: dict[str, int]) -> str:
    if name not in index:
        raise ValueError(f"'{name}' is not defined in the placement problem")
    return name


def _meshes(
    problem: PlacementProblem, units: dict[str, int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Connected components of must_share, in the order of their first unit."""
    label = list(range(len(units)))
    for a, b in problem.must_share:
        keep, drop = sorted((label[units[_known(a, units)]], label[units[_known(b, units)]]))
        label = [keep if x == drop else x for x in label]
    roots = sorted(set(label))
    meshes = tuple(tuple(u for u, x in enumerate(label) if x == root) for root in roots)
    return meshes, tuple(roots.index(x) for x in label)


def _runnable(problem: PlacementProblem, unit: Unit) -> Options:
    """Options whose times are finite and that fit alone on their group."""
    n = len(unit.devices)
    time_s = np.asarray(unit.time_s, dtype=np.float64).reshape(n, len(unit.calls))
    peak = np.asarray(unit.peak_bytes, dtype=np.float64).reshape(n, len(unit.calls))
    resident = np.asarray(unit.resident_bytes, dtype=np.float64)
    group = np.asarray(unit.group, dtype=np.int64)
    devices = np.asarray(unit.devices, dtype=np.int64)
    per_node = np.asarray(problem.group_devices_per_node, dtype=np.int64)[group]
    on_node = np.minimum(devices, per_node)
    host = np.asarray(unit.host_bytes_per_device, dtype=np.float64) * on_node
    extra = np.maximum(peak.max(axis=1, initial=0.0) - resident, 0.0)
    available = np.asarray(problem.group_devices, dtype=np.int64)[group]
    fits = (
        np.isfinite(time_s).all(axis=1)
        & (devices >= 1)
        & (devices <= available)
        & (resident + extra <= np.asarray(problem.group_memory_bytes, dtype=np.float64)[group])
        & (host <= np.asarray(problem.group_host_memory_bytes, dtype=np.float64)[group])
    )
    return Options(np.arange(n), group, devices, time_s, resident, extra, host).take(fits)


def _same_keys(instance: Instance) -> Instance:
    """Drop options on meshes that some other unit of the same mesh has no option for."""
    options = list(instance.options)
    for members in instance.meshes:
        common = set.intersection(*(instance.keys(u) for u in members))
        for u in members:
            rows = options[u]
            keys = zip(rows.group.tolist(), rows.devices.tolist(), strict=True)
            options[u] = rows.take(np.array([key in common for key in keys], dtype=np.bool_))
    return instance.with_options(options)
