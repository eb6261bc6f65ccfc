"""Strategy (how one call is parallelised), Mesh (where it runs), SearchSpace (what is legal)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.base import Name, NonNegativeInt, PositiveInt, Schema
from planner.schema.hardware import DType
from planner.schema.workload import CallKind

Degree = Annotated[int, Field(ge=1, le=65536)]
Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "all"]
PipelineSchedule = Literal["1f1b", "zb-h1", "zb-h2", "dualpipe"]


class Strategy(Schema):
    """How one call is parallelised. devices = tp x pp x cp x dp (for generate, dp = replicas)."""

    tp: Degree = 1
    """Tensor-parallel degree."""
    pp: Degree = 1
    """Pipeline-parallel degree."""
    vpp: Degree = 1
    """Virtual pipeline stages on each device (interleaved 1F1B); 1 = plain 1F1B."""
    cp: Degree = 1
    """Context-parallel degree (ring, all-gather or Ulysses as the launcher does it)."""
    ulysses: Degree = 1
    """Part of cp that exchanges heads (Ulysses) inside a ring of cp / ulysses ranks: 1 a plain
    ring, cp plain Ulysses, between them a hybrid. 1 too where the framework's cp is always
    Ulysses."""
    ep: Degree = 1
    """Expert-parallel degree; divides tp x cp x dp / etp ranks of a stage."""
    etp: Degree = 1
    """Tensor-parallel degree inside an expert."""
    dp: Degree = 1
    """Data-parallel degree; for generate, the number of engine replicas."""
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    """What is sharded over data parallel ranks: 1 optimizer, 2 + gradients, 3 + weights (FSDP).
    Read by train (and, stage 3, by forward)."""
    shard_ranks: NonNegativeInt = 0
    """Ranks among which ZeRO shards; every such group holds a replica of the whole state (hybrid
    sharding, HSDP). 0: all data- and context-parallel ranks."""
    pipeline_schedule: PipelineSchedule = "1f1b"
    """train: order of passes in a pipeline. 1f1b (interleaved when vpp > 1); zb-h1 and zb-h2 fill
    bubbles with weight gradients (zb-h2 with twice the activations); dualpipe feeds both ends of
    stages that hold two parts of the model, and hides expert exchanges."""
    sequence_parallel: bool = False
    """Megatron sequence parallelism: activations outside the TP regions are split by tp."""
    micro_batch_sequences: PositiveInt = 1
    """Sequences of maximum length whose token budget one packed microbatch has; without packing,
    padded sequences in one microbatch."""
    packing: bool = True
    """True: variable-length sequences share a microbatch up to its token budget (sequence packing
    or dynamic batching). False: every sequence is padded to the maximum."""
    recompute: Recompute = "none"
    """Activation recomputation in training."""
    offload: Offload = "none"
    """What moves to host memory while other calls use the devices: nothing, the optimizer state,
    or the whole state of the model."""
    first_stage_layers: NonNegativeInt = 0
    """Layers on the first pipeline stage; 0 = even split (see last_stage_layers)."""
    last_stage_layers: NonNegativeInt = 0
    """Layers on the last pipeline stage; 0 = even split."""
    max_running_sequences: PositiveInt = 1024
    """generate: sequences that one replica decodes at the same time at most."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """generate: share of device memory that the engine may use."""
    dtype: DType = "bf16"
    """Precision of the matrix multiplications (and, for generate, of the weights)."""
    optimizer_on_cpu: bool = False
    """train: optimizer states live in host memory and the update runs there."""

    @property
    def devices(self) -> int:
        """Devices used: tp x pp x cp x dp."""
        return self.tp * self.pp * self.cp * self.dp


class Mesh(Schema):
    """The devices of a call: whole nodes of one group, or a slice of one node."""

    group: Name
    """Name of the node group."""
    first_node: NonNegativeInt
    """First node of the mesh inside its group, from 0."""
    nodes: PositiveInt
    """Number of nodes, contiguous."""
    first_device: NonNegativeInt = 0
    """First device inside each node; above 0 only for a slice of one node."""
    devices_per_node: PositiveInt
    """Devices that it takes of each node; fewer than the node has for a slice of one."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    def overlaps(self, other: Mesh) -> bool:
        """True when the two meshes share a device."""
        return (
            self.group == other.group
            and self.first_node < other.first_node + other.nodes
            and other.first_node < self.first_node + self.nodes
            and self.first_device < other.first_device + other.devices_per_node
            and other.first_device < self.first_device + self.devices_per_node
        )

    @model_validator(mode="after")
    def _slice_of_one_node(self) -> Self:
        if self.first_device > 0 and self.nodes > 1:
            raise ValueError("a mesh that starts inside a node must lie on one node")
        return self


class Rule(Schema):
    """A legality rule of a launcher: an expression that must be true for every strategy.

    The expression sees the strategy's fields, the model's and the workload's figures, and the
    mesh; `docs/search-spaces.md` lists the names. It is evaluated over arrays by one safe
    evaluator (a whitelisted subset of Python's syntax, no `eval`).
    """

    id: Name
    """Unique within the space; error messages name it."""
    calls: tuple[CallKind, ...]
    """Call kinds that the rule applies to."""
    check: Name
    """The expression, for example "sequences_per_optimizer_step % dp == 0"."""
    message: Name
    """What is wrong when it is false; may name fields in braces."""
    remedy: Name
    """What to do."""
    source: Name
    """Where the launcher enforces it."""
    enforced: bool = True
    """False when the launcher would run it and only plans keep to it; `check` lets it pass."""


class CallSpace(Schema):
    """Values that the fields of Strategy may take for one kind of call."""

    tp: tuple[Degree, ...] = (1,)
    """Tensor-parallel degrees."""
    pp: tuple[Degree, ...] = (1,)
    """Pipeline-parallel degrees."""
    vpp: tuple[Degree, ...] = (1,)
    """Virtual pipeline stages on each device."""
    cp: tuple[Degree, ...] = (1,)
    """Context-parallel degrees."""
    ulysses: tuple[Degree, ...] = (1,)
    """Ulysses degrees inside cp; those that do not divide cp are skipped."""
    ep: tuple[Degree, ...] = (1,)
    """Expert-parallel degrees; 1 alone counts for a dense model."""
    etp: tuple[Degree, ...] = (1,)
    """Tensor-parallel degrees inside an expert; 1 alone counts for a dense model."""
    zero_stage: tuple[Annotated[int, Field(ge=0, le=3)], ...] = (0,)
    """ZeRO stages."""
    shard_ranks: tuple[NonNegativeInt, ...] = (0,)
    """Ranks among which ZeRO shards; 0: all. Sizes that do not divide dp x cp are skipped."""
    pipeline_schedule: tuple[PipelineSchedule, ...] = ("1f1b",)
    """Orders of passes in a pipeline; read for train."""
    sequence_parallel: Literal["never", "with_tp", "optional"] = "never"
    """with_tp: always on when tp > 1."""
    micro_batch_sequences: tuple[PositiveInt, ...] = (1,)
    """Sequences in a microbatch (see Strategy)."""
    packing: tuple[bool, ...] = (True,)
    """Whether sequences may share a microbatch's token budget, must be padded, or either."""
    recompute: tuple[Recompute, ...] = ("none",)
    """Activation recomputation; read for train."""
    offload: tuple[Offload, ...] = ("none",)
    """What may move to host memory between calls."""
    uneven_stages: bool = False
    """True when the first and last pipeline stages may hold fewer layers."""
    max_running_sequences: tuple[PositiveInt, ...] = (1024,)
    """Sequences that a replica decodes at once; read for generate."""
    memory_fraction: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.9,)
    """Shares of device memory for the engine; read for generate."""
    optimizer_on_cpu: tuple[bool, ...] = (False,)
    """Whether the optimizer may run on the host."""
    dtype: tuple[DType, ...] = ("bf16",)
    """Dtypes that the launcher can run; the workload's dtype picks one of them."""


class SearchSpace(Schema):
    """What one launcher back end can run."""

    name: Name
    """Name of the space and of its file."""
    launcher: Name | None
    """The exporter that writes plans of this space; null for the unrestricted space."""
    description: Name
    """What it describes, in words."""
    framework: Name
    """The framework profile (overheads, overlap) in hardware_profiles/frameworks/."""
    engine: Name
    """The generation engine's profile in hardware_profiles/frameworks/."""
    calls: dict[CallKind, CallSpace]
    """Call kind -> the values that its strategies may take."""
    placements: tuple[Literal["colocated", "disaggregated", "free"], ...]
    """colocated: all models take turns on the same devices; disaggregated: the generation engine
    has devices of its own and the others share the rest; free: any."""
    sub_node_meshes: bool = False
    """True when a model may run on part of a node (of a cluster with several nodes)."""
    max_staleness: NonNegativeInt = 0
    """Most versions that the generating policy may lag behind; 0: synchronous only."""
    reference_shares_actor_layout: bool = False
    """True when the reference model runs in the actor's trainer processes: same devices and
    degrees, its weights swapped in from host memory."""
    reallocation: bool = False
    """True when forward passes of a trained model may run in another layout than its training, on
    weights that are reallocated from the trainer in each step: on the trainer's devices, or, for
    one of the trained models, on others (placement "free")."""
    fusions: tuple[Name, ...] = ()
    """Fused forms of calls that the launcher can run (docs/fusion.md); each set of them that the
    workload allows is searched."""
    own_devices: dict[Literal["colocated", "disaggregated"], tuple[Name, ...]] = Field(
        default_factory=dict
    )
    """Placement -> roles whose models must have devices of their own there, shared with no other
    model (a reward model that the launcher serves from separate workers, say)."""
    equal_micro_batch: Name | None = None
    """Expression, like a rule's `check`: where it is true, all calls of a unit must have the same
    `micro_batch_sequences`. Null: they are free to differ."""
    rules: tuple[Rule, ...] = ()
    """Legality rules beside those of arithmetic, which hold for every launcher."""
    version: Name
    """Launcher release that the space describes."""
