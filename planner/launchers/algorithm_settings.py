"""How each launcher's settings say which algorithm runs: written from a workload, and recognised.

An algorithm of the planner is a graph of calls. Algorithms that differ in their loss alone (GSPO,
CISPO, Dr. GRPO) have GRPO's calls, and are told apart here so that a plan for one is exported as
that one. Estimators with other calls than the launcher makes are not in the tables: RLOO and ReMax
of the planner have no old log-probabilities, which verl, OpenRLHF and slime always compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.launchers.settings import Settings

GROUPED = frozenset({"grpo", "dr-grpo", "dapo", "gspo", "cispo", "reinforce-pp-baseline"})
"""Algorithms that compare the samples of a prompt."""
_WITHOUT_REFERENCE = frozenset({"dr-grpo", "dapo", "cispo"})
"""Algorithms whose papers have no KL term, and whose graphs no reference."""


@dataclass(frozen=True)
class Spelling:
    """The settings of one algorithm."""

    algorithm: str
    marks: Mapping[str, Any]
    """Settings by which it is recognised."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that are written."""


Spellings = tuple[Spelling, ...]

_ACTOR = "actor_rollout_ref.actor"
_ADVANTAGE = "algorithm.adv_estimator"
VERL: Spellings = (
    Spelling("ppo", {_ADVANTAGE: "gae"}),
    Spelling("reinforce-pp", {_ADVANTAGE: "reinforce_plus_plus"}),
    Spelling("reinforce-pp-baseline", {_ADVANTAGE: "reinforce_plus_plus_baseline"}),
    Spelling(
        "gspo",
        {_ADVANTAGE: "grpo", f"{_ACTOR}.policy_loss.loss_mode": "gspo"},
        {f"{_ACTOR}.loss_agg_mode": "seq-mean-token-mean"},
    ),
    Spelling("cispo", {_ADVANTAGE: "grpo", f"{_ACTOR}.policy_loss.loss_mode": "cispo"}),
    Spelling(
        "dr-grpo",
        {_ADVANTAGE: "grpo", "algorithm.norm_adv_by_std_in_grpo": False},
        {f"{_ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm"},
    ),
    Spelling(
        "dapo",
        {_ADVANTAGE: "grpo", f"{_ACTOR}.clip_ratio_high": 0.28},
        {f"{_ACTOR}.clip_ratio_low": 0.2, f"{_ACTOR}.loss_agg_mode": "token-mean"},
    ),
    Spelling("grpo", {_ADVANTAGE: "grpo"}),
)
_ESTIMATOR = "algo.advantage.estimator"
OPENRLHF: Spellings = (
    Spelling("ppo", {_ESTIMATOR: "gae"}),
    Spelling("reinforce-pp", {_ESTIMATOR: "reinforce"}),
    Spelling("reinforce-pp-baseline", {_ESTIMATOR: "reinforce_baseline"}),
    Spelling("dr-grpo", {_ESTIMATOR: "dr_grpo"}),
    Spelling("gspo", {_ESTIMATOR: "group_norm", "actor.policy_loss_type": "gspo"}),
    Spelling("grpo", {_ESTIMATOR: "group_norm"}),
)
SLIME: Spellings = (
    Spelling("gspo", {"advantage-estimator": "gspo"}),
    Spelling("cispo", {"advantage-estimator": "cispo"}),
    Spelling("reinforce-pp", {"advantage-estimator": "reinforce_plus_plus"}),
    Spelling("reinforce-pp-baseline", {"advantage-estimator": "reinforce_plus_plus_baseline"}),
    Spelling("dr-grpo", {"advantage-estimator": "grpo", "disable-grpo-std-normalization": True}),
    Spelling("dapo", {"advantage-estimator": "grpo", "eps-clip-high": 0.28}, {"eps-clip": 0.2}),
    Spelling("grpo", {"advantage-estimator": "grpo"}),
)
TRL: Spellings = (
    Spelling("gspo", {"importance_sampling_level": "sequence"}, {"loss_type": "grpo"}),
    Spelling("cispo", {"loss_type": "cispo"}, {"epsilon_high": 5.0}),
    Spelling("dr-grpo", {"loss_type": "dr_grpo"}, {"scale_rewards": "none"}),
    # dapo is TRL's default loss, so the wider clip is what tells it from GRPO.
    Spelling("dapo", {"loss_type": "dapo", "epsilon_high": 0.28}, {"epsilon": 0.2}),
    Spelling("grpo", {}, {"loss_type": "grpo"}),
)


def algorithms_of(spellings: Spellings) -> tuple[str, ...]:
    """The algorithms of a table, GRPO and PPO first."""
    names = [each.algorithm for each in spellings]
    first = [name for name in ("grpo", "ppo") if name in names]
    return (*first, *sorted(set(names) - set(first)))


def algorithm_keys(spellings: Spellings, algorithm: str) -> dict[str, Any]:
    """The settings that choose an algorithm of the table."""
    found = next(each for each in spellings if each.algorithm == algorithm)
    return {**found.marks, **found.also}


def recognised(spellings: Spellings, settings: Settings) -> str | None:
    """The first algorithm of the table whose marks are all set; None without one."""
    for each in spellings:
        for key in each.also:
            settings.raw(key)
    for each in spellings:
        marks = {key: settings.raw(key) for key in each.marks}
        if all(_same(marks[key], value) for key, value in each.marks.items()):
            return each.algorithm
    return None


def fitting(algorithm: str, samples: int, kl_weight: float, notes: list[str]) -> str:
    """The algorithm whose graph takes these samples and this KL term; notes say when it differs.

    One sample a prompt makes no group, and a KL term brings a reference that some graphs lack.
    """
    if algorithm in GROUPED and samples == 1:
        notes.append(f"{algorithm} with one sample a prompt: priced as reinforce-pp, its calls")
        return "reinforce-pp"
    if algorithm in _WITHOUT_REFERENCE and kl_weight > 0:
        notes.append(f"{algorithm} with a KL term: priced as grpo, which has a reference")
        return "grpo"
    return algorithm


def _same(have: Any, want: Any) -> bool:
    if isinstance(want, bool):
        return have is not None and str(have).lower() == str(want).lower()
    if isinstance(want, float):
        try:
            return have is not None and float(have) == want
        except (TypeError, ValueError):
            return False
    return bool(have == want)
