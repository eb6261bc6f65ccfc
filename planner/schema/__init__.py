"""The pydantic types: validation, no computation, no I/O."""

from planner.schema.base import Schema
from planner.schema.framework import Constant, FrameworkProfile
from planner.schema.front import FrontPoint, ParetoFront
from planner.schema.hardware import Cluster, DeviceProfile, DType, NodeGroup
from planner.schema.model import MLASpec, ModelSpec, MoESpec, WindowSpec
from planner.schema.plan import (
    SCHEMA_VERSION,
    Assignment,
    CallPrediction,
    Limits,
    Plan,
    PlanSet,
    Prediction,
    SearchReport,
)
from planner.schema.strategy import (
    CallSpace,
    Mesh,
    Offload,
    PipelineSchedule,
    Recompute,
    Rule,
    SearchSpace,
    Strategy,
)
from planner.schema.workload import (
    BlockDiffusion,
    Call,
    CallKind,
    CallLengths,
    EnvironmentSpec,
    LengthDistribution,
    Speculation,
    TurnSpec,
    Workload,
)

__all__ = [
    "SCHEMA_VERSION",
    "Assignment",
    "BlockDiffusion",
    "Call",
    "CallKind",
    "CallLengths",
    "CallPrediction",
    "CallSpace",
    "Cluster",
    "Constant",
    "DType",
    "DeviceProfile",
    "EnvironmentSpec",
    "FrameworkProfile",
    "FrontPoint",
    "LengthDistribution",
    "Limits",
    "MLASpec",
    "Mesh",
    "MoESpec",
    "ModelSpec",
    "NodeGroup",
    "Offload",
    "ParetoFront",
    "PipelineSchedule",
    "Plan",
    "PlanSet",
    "Prediction",
    "Recompute",
    "Rule",
    "Schema",
    "SearchReport",
    "SearchSpace",
    "Speculation",
    "Strategy",
    "TurnSpec",
    "WindowSpec",
    "Workload",
]
