"""CheckReport: what `rlmplan check` says about a launcher's configuration."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, NonNegativeFloat, Schema
from planner.schema.hardware import Cluster
from planner.schema.plan import Plan, Prediction
from planner.schema.strategy import Strategy
from planner.schema.workload import Workload

CheckVerdict = Literal["fits", "tight", "will not run"]


class BrokenSetting(Schema):
    """A rule that the configuration breaks."""

    rule: Name
    """Id of the rule."""
    call: str
    """The call that it concerns; empty for the whole configuration."""
    message: str
    """What is wrong, with the values."""
    keys: tuple[str, ...]
    """The launcher's settings that the rule reads."""
    nearest: tuple[str, ...]
    """Changes that make it legal, ``key=value``, nearest first."""
    source: str
    """Where the launcher enforces it."""


class MemoryShortage(Schema):
    """A call that does not fit in the memory of its devices, or of its nodes."""

    call: Name
    """The call; "host memory" when it is the node's that is short."""
    short_bytes: NonNegativeFloat
    """Bytes missing on the fullest device (or node)."""
    needed_bytes: NonNegativeFloat
    """Bytes that the call needs there (of an engine without room for a sequence: before any)."""
    room_bytes: NonNegativeFloat
    """Bytes that it may use there."""
    largest: tuple[tuple[str, int], ...]
    """The largest items, bytes, largest first."""
    cause: str = ""
    """Where one setting is at fault, which and up to where it fits; "" otherwise."""


class OneChange(Schema):
    """A change of one decision, priced."""

    settings: tuple[str, ...]
    """The launcher's settings, ``key=value``."""
    meaning: str
    """The change in words, for example "actor_train tp 4 -> 8"."""
    step_time_s: NonNegativeFloat
    """Predicted step time with it."""
    verdict: Literal["fits", "tight"]
    """Its memory verdict."""


class SettingChange(Schema):
    """A setting that the best plan has otherwise."""

    key: str
    """The launcher's setting."""
    have: str
    """Its value now; "" when it is not set."""
    want: str
    """Its value in the best plan; "" when the best plan does not need it."""


class CallChange(Schema):
    """What the best plan does differently for one call."""

    call: Name
    """The call."""
    change: str
    """In words, for example "tp 8 -> 2, 4 -> 16 replicas"."""
    have_s: NonNegativeFloat | None
    """Its time now; null when the configuration cannot be priced."""
    want_s: NonNegativeFloat
    """Its time in the best plan."""


class IgnoredSetting(Schema):
    """A setting that does not enter the prediction."""

    key: str
    """The setting as it was written down."""
    value: str
    """Its value, as text."""
    where: str
    """The file or option."""
    reason: str
    """Why."""
    unknown: bool = False
    """The launcher has no such key: most likely it is misspelt."""


class CheckReport(Schema):
    """What would happen if a configuration were started, and what would be better."""

    launcher: Name
    """The launcher."""
    version: Name
    """The release whose rules were applied."""
    space: Name
    """The search space that describes it."""
    verdict: CheckVerdict
    """will not run: a rule is broken or memory is short."""
    workload: Workload
    """What the configuration asks for."""
    cluster: Cluster
    """The devices that it uses."""
    broken: tuple[BrokenSetting, ...]
    """Rules broken."""
    shortages: tuple[MemoryShortage, ...]
    """Calls that do not fit in memory."""
    prediction: Prediction | None
    """Times and memory of every call; null when the degrees fit no mesh."""
    strategies: dict[Name, Strategy]
    """Call -> strategy as read; empty when the degrees fit no mesh."""
    remedies: tuple[OneChange, ...]
    """Single changes that make it run, or make it faster, best first."""
    best: Plan | None
    """The best plan on the same devices; null when none was found or looked for."""
    best_note: str
    """Why there is no best plan, or that the configuration is as good."""
    speedup: NonNegativeFloat | None
    """Step time now over the best plan's; null when either is unknown."""
    setting_changes: tuple[SettingChange, ...]
    """Settings to change for the best plan."""
    call_changes: tuple[CallChange, ...]
    """The same by call."""
    ignored: tuple[IgnoredSetting, ...]
    """Settings that do not enter the prediction."""
    notes: tuple[str, ...]
    """What was assumed."""
