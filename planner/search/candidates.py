"""Every legal strategy of a call on every mesh size, as arrays.

Columns are crossed one by one, and each rule masks rows as soon as all the names that it reads are
there: the degrees first, so that the table stays small. There is no Python loop over strategies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import BoolArray, IntArray, StrategyArrays, encode
from planner.cost.rule_values import STRATEGY_NAMES, Placement, call_values
from planner.cost.rules import CompiledRule
from planner.errors import InputError
from planner.schema import Call, CallSpace, ModelSpec, NodeGroup, SearchSpace, Strategy, Workload
from planner.search.legality import all_rules, call_space, legal_mask

# Up to here every node count is tried; beyond, those that halve, third or complement the cluster.
_ALL_NODE_COUNTS_UP_TO = 16


LAYOUT_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage", "shard_ranks", "ulysses"),
    *("sequence_parallel", "packing", "pipeline_schedule"),
    *("offload", "first_stage_layers", "last_stage_layers", "dtype", "optimizer_on_cpu"),
)
"""Fields that two calls on one copy of a model must agree in."""


def enumerate_candidates(
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
    device_counts: Sequence[int] | None = None,
    *,
    trained: bool = True,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> StrategyArrays:
    """All strategies that `call` may have on `group` in `space`.

    `device_counts` are the mesh sizes to consider (`mesh_sizes` when None). `trained` is True for
    every call of a trained model's unit: a frozen model has no optimizer to place. `placement` and
    `staleness` restrict to plans of one class where the launcher's rules depend on it.

    Values that can never help are left out although they are legal: padding where packing is
    legal too, and running more sequences at once than a replica ever gets.

    Raises InputError when the space cannot run the call or the workload's dtype. A device that
    lacks the dtype has no candidates.
    """
    values = call_space(space, call.kind)
    dtype = workload.generate_dtype if call.kind == "generate" else workload.train_dtype
    if dtype not in values.dtype:
        raise InputError(
            f"the workload asks for {dtype} in {call.kind} calls, but {space.name} runs "
            f"{', '.join(values.dtype)}",
            where=f"workload {workload.name}",
            remedy="Change the dtype or the search space",
        )
    sizes = mesh_sizes(group, space) if device_counts is None else np.unique(device_counts)
    if dtype not in group.device.peak_flop_per_s:
        sizes = sizes[:0]
    fixed = call_values(
        call,
        model,
        workload,
        group,
        cluster_devices=cluster_devices,
        placement=placement,
        staleness=staleness,
    )
    rules = all_rules(space, call.kind)
    layouts = _layouts(call, model, values, np.asarray(sizes, dtype=np.int64), fixed, rules)
    layouts.cross("dtype", [encode("dtype", dtype)])
    if call.kind == "generate":
        batches = max(1.0 + staleness, 1.0 + (workload.partial_rollout or 0.0))
        if workload.tail_batching is not None:
            batches *= workload.tail_batching.prompts * workload.tail_batching.samples
        table = _engine_knobs(layouts, call, values, batches)
    else:
        table = _trainer_knobs(layouts, call, values, trained)
    return table.strategies()


def forward_variants(
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
    layouts: StrategyArrays,
    *,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> tuple[StrategyArrays, IntArray]:
    """Strategies of a forward call that shares its model copy with a trained call.

    `layouts` are strategies of the trained call, shape [m], usually one for each layout. Each is
    combined with the microbatch sizes that forward calls may have; the other fields stay. Returns
    the legal combinations, shape [n], and the row of `layouts` that each came from, shape [n].
    """
    values = call_space(space, call.kind)
    table = _Table({}, (), len(layouts))
    table.put(row=np.arange(len(layouts)))
    table.cross("micro_batch_sequences", sorted(set(values.micro_batch_sequences)))
    rows = table.columns["row"]
    strategies = replace(
        layouts.take(rows),
        micro_batch_sequences=table.columns["micro_batch_sequences"],
        recompute=np.full(table.n, encode("recompute", "none")),
    )
    legal = legal_mask(
        strategies,
        call,
        model,
        workload,
        group,
        space,
        cluster_devices=cluster_devices,
        placement=placement,
        staleness=staleness,
    )
    return strategies.take(legal), rows[legal]


def mesh_sizes(group: NodeGroup, space: SearchSpace) -> IntArray:
    """Device counts that a mesh on the group may have, ascending.

    Whole nodes: every number of nodes up to 16; in larger groups 2^i, 3 x 2^i, all nodes less one
    of those, and all. Inside a node, where the space allows it or there is only one: 1, 2, 4, ...
    devices, and on a single node every number.
    """
    per_node = group.devices_per_node
    nodes = _counts(group.nodes)
    inside: IntArray = np.empty(0, dtype=np.int64)
    if group.nodes == 1:
        inside = _counts(per_node)
    elif space.sub_node_meshes:
        inside = 2 ** np.arange(per_node.bit_length(), dtype=np.int64)
        inside = inside[(inside < per_node) & (per_node % inside == 0)]
    return np.unique(np.concatenate([inside, nodes * per_node]))


def stage_splits(num_layers: int, pp: int, uneven: bool) -> list[tuple[int, int]]:
    """Layers of the (first, last) pipeline stage to consider; (0, 0) is the even split.

    Uneven splits give all middle stages the same number of layers and the ends the rest: as equal
    as possible when the layers do not divide (61 layers over 16 stages: 3, 14 x 4, 2), and one
    with lighter ends, which also hold the embedding and the head, when they do.
    """
    splits = [(0, 0)] if num_layers % pp == 0 else []
    if not uneven or pp == 1 or num_layers < pp:
        return splits
    if pp == 2:
        half = -(-num_layers // 2)
        ends = [(half, num_layers - half), (half + 1, num_layers - half - 1)]
    else:
        ends = []
        per_stage = {num_layers // pp, -(-num_layers // pp)}
        if num_layers % pp == 0:
            per_stage.add(num_layers // pp + 1)
        for middle in sorted(per_stage):
            rest = num_layers - middle * (pp - 2)
            first = -(-rest // 2)
            if first <= middle + 1:
                ends.append((first, rest - first))
    even = num_layers / pp
    return splits + [
        (first, last) for first, last in ends if last >= 1 and not first == last == even
    ]


def unit_layout_keys(
    strategies: Sequence[StrategyArrays], same_micro_batch: Sequence[BoolArray] | None = None
) -> list[IntArray]:
    """Numbers that are equal for equal layouts, for the calls of one unit.

    Two strategies have the same layout when all fields agree except `micro_batch_sequences`,
    `recompute` and the generation knobs. Where `same_micro_batch` (one mask of shape [n] for each
    call) is True, the microbatch counts as part of the layout. Returns one array of shape [n] for
    each of `strategies`; keys compare across them.
    """
    lengths = [len(part) for part in strategies]
    columns = [
        np.concatenate([getattr(part, name) for part in strategies]) for name in LAYOUT_FIELDS
    ]
    if same_micro_batch is not None:
        sizes = np.concatenate([part.micro_batch_sequences for part in strategies])
        columns.append(np.where(np.concatenate(list(same_micro_batch)), sizes, 0))
    key = np.zeros(sum(lengths), dtype=np.int64)
    distinct = 1
    for column in columns:
        found, codes = np.unique(column, return_inverse=True)
        if distinct * len(found) >= 2**62:
            renumbered, key = np.unique(key, return_inverse=True)
            distinct = len(renumbered)
        key = key * len(found) + codes
        distinct *= len(found)
    return np.split(key, np.cumsum(lengths)[:-1])


class _Table:
    """Columns of equal length, and the rules that still wait for theirs."""

    def __init__(self, fixed: dict[str, Any], rules: Sequence[CompiledRule], n: int):
        self.fixed = fixed
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.waiting = list(rules)
        self.n = n

    def copy(self) -> _Table:
        twin = _Table(self.fixed, self.waiting, self.n)
        twin.columns = dict(self.columns)
        return twin

    def cross(self, name: str, options: npt.ArrayLike) -> None:
        """Every row with every option, then the rules that this makes ready."""
        array = np.asarray(options)
        if len(array) == 1:
            self.put(**{name: array[0]})
            return
        repeats, n = len(array), self.n
        self.columns = {key: np.repeat(column, repeats) for key, column in self.columns.items()}
        self.columns[name] = np.tile(array, n)
        self.n = n * repeats
        self.apply_rules()

    def put(self, **columns: npt.ArrayLike) -> None:
        """Add columns of length n."""
        for name, column in columns.items():
            self.columns[name] = np.broadcast_to(np.asarray(column), (self.n,))
        self.apply_rules()

    def keep(self, rows: npt.ArrayLike) -> None:
        """Keep the rows that a mask or an index array selects."""
        index = np.asarray(rows)
        self.columns = {key: column[index] for key, column in self.columns.items()}
        self.n = int(index.sum()) if index.dtype == np.bool_ else len(index)

    def apply_rules(self) -> None:
        known = self.fixed.keys() | self.columns.keys()
        ready = [rule for rule in self.waiting if rule.check.names <= known]
        if not ready or self.n == 0:
            return
        self.waiting = [rule for rule in self.waiting if not rule.check.names <= known]
        values = self.fixed | self.columns
        mask = np.ones(self.n, dtype=np.bool_)
        for rule in ready:
            mask &= rule.check.mask(values, self.n)
        if not mask.all():
            self.keep(mask)

    def strategies(self) -> StrategyArrays:
        """The rows; fields that were not enumerated take Strategy's defaults."""
        defaults = Strategy()
        for name in STRATEGY_NAMES:
            if name not in self.columns:
                self.columns[name] = np.full(self.n, encode(name, getattr(defaults, name)))
        self.apply_rules()
        columns: dict[str, npt.ArrayLike] = {
            name: column for name, column in self.columns.items() if name != "devices"
        }
        return StrategyArrays.from_columns(columns, self.n)


def _layouts(
    call: Call,
    model: ModelSpec,
    values: CallSpace,
    sizes: IntArray,
    fixed: dict[str, Any],
    rules: Sequence[CompiledRule],
) -> _Table:
    """Devices, degrees, expert degrees, sharding and stage splits."""
    table = _Table(fixed, rules, 1)
    table.cross("devices", sizes)
    for degree in ("tp", "pp", "cp"):
        table.cross(degree, getattr(values, degree))
        table.keep(table.columns["devices"] % _product(table, degree) == 0)
    table.put(dp=table.columns["devices"] // _product(table, "cp"))
    if call.kind != "generate":
        table.cross("ulysses", sorted(set(values.ulysses)))
    table.cross("ep", values.ep if model.moe else [1])
    if call.kind == "generate":
        table.put(etp=1, vpp=1, first_stage_layers=0, last_stage_layers=0)
        return table
    table.cross("etp", values.etp if model.moe else [1])
    table.cross("zero_stage", values.zero_stage)
    table.cross("shard_ranks", sorted(set(values.shard_ranks)))
    with_tp = table.columns["tp"] > 1
    match values.sequence_parallel:
        case "never":
            table.put(sequence_parallel=np.zeros(table.n, dtype=np.bool_))
        case "with_tp":
            table.put(sequence_parallel=with_tp)
        case "optional":
            table.cross("sequence_parallel", [False, True])
    table.cross("vpp", values.vpp)
    schedules = values.pipeline_schedule if call.kind == "train" else ("1f1b",)
    table.cross("pipeline_schedule", [encode("pipeline_schedule", name) for name in schedules])
    _cross_stages(table, model.num_layers, values)
    return table


def _product(table: _Table, last: str) -> IntArray:
    """tp, tp x pp or tp x pp x cp: the product of the degrees up to `last`."""
    product = np.ones(table.n, dtype=np.int64)
    for degree in ("tp", "pp", "cp"):
        product = product * table.columns[degree]
        if degree == last:
            break
    return product


def _cross_stages(table: _Table, num_layers: int, values: CallSpace) -> None:
    """Each row with the stage splits of its pp."""
    options = {int(pp): stage_splits(num_layers, int(pp), values.uneven_stages) for pp in values.pp}
    flat = [split for pp in sorted(options) for split in options[pp]]
    starts = dict(
        zip(
            sorted(options),
            np.cumsum([0, *(len(options[pp]) for pp in sorted(options))]).tolist(),
            strict=False,
        )
    )
    pp_column = table.columns["pp"]
    counts = np.zeros(table.n, dtype=np.int64)
    first_option = np.zeros(table.n, dtype=np.int64)
    for pp, splits in options.items():
        rows = pp_column == pp
        counts[rows] = len(splits)
        first_option[rows] = starts[pp]
    table.keep(np.repeat(np.arange(table.n), counts))
    within = np.arange(table.n) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.repeat(first_option, counts) + within
    pairs = np.asarray(flat, dtype=np.int64).reshape(-1, 2)[chosen]
    table.put(first_stage_layers=pairs[:, 0], last_stage_layers=pairs[:, 1])


def _trainer_knobs(table: _Table, call: Call, values: CallSpace, trained: bool) -> _Table:
    """Microbatch, packing, recomputation, offload."""
    offload, on_cpu = values.offload, values.optimizer_on_cpu
    if not trained:
        offload = tuple(option for option in offload if option != "optimizer") or offload
        on_cpu = (False,) if False in on_cpu else on_cpu
    # A padded microbatch does the work of a packed one and more: padding is only tried where the
    # launcher's rules leave nothing else.
    packed = table.copy()
    packed.cross("packing", [True] if True in values.packing else [False])
    if packed.n == 0 and False in values.packing:
        packed = table
        packed.cross("packing", [False])
    packed.cross("micro_batch_sequences", sorted(set(values.micro_batch_sequences)))
    recompute = values.recompute if call.kind == "train" else values.recompute[:1]
    packed.cross("recompute", [encode("recompute", option) for option in recompute])
    packed.cross("offload", [encode("offload", option) for option in offload])
    packed.cross("optimizer_on_cpu", on_cpu)
    return packed


def _engine_knobs(table: _Table, call: Call, values: CallSpace, batches: float) -> _Table:
    """Memory fraction and running sequences of an engine with as many batches in flight."""
    table.cross("memory_fraction", sorted(set(values.memory_fraction)))
    limits = np.asarray(sorted(set(values.max_running_sequences)), dtype=np.int64)
    table.cross("max_running_sequences", limits)
    # A replica never holds more than its share of the batches in flight.
    in_flight = np.ceil(call.sequences * batches / table.columns["dp"])
    enough = np.minimum(np.searchsorted(limits, in_flight), len(limits) - 1)
    table.keep(table.columns["max_running_sequences"] <= limits[enough])
    return table


def _counts(n: int) -> IntArray:
    """1..n when n is small, else 2^i, 3 x 2^i, n less those, and n."""
    if n <= _ALL_NODE_COUNTS_UP_TO:
        return np.arange(1, n + 1, dtype=np.int64)
    powers = 2 ** np.arange(n.bit_length(), dtype=np.int64)
    some = np.concatenate([powers, 3 * powers])
    some = some[some < n]
    return np.unique(np.concatenate([some, n - some, np.asarray([n])]))
