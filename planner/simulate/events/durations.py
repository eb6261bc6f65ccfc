"""How long every call of every iteration takes: what the loop asks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.context import CallContext
from planner.cost.rounds import round_contexts
from planner.schema import Assignment, Call, Strategy
from planner.simulate.events.batches import BatchCall
from planner.simulate.events.generation import Generation, drain, flow, race
from planner.simulate.events.lengths import sample_batch
from planner.simulate.events.pool import Pool
from planner.simulate.events.prices import replica_prices
from planner.simulate.instance import Instance
from planner.simulate.prices import price_key
from planner.workload.calls import workload_of
from planner.workload.lengths import expected_maximum, limited_moment
from planner.workload.partial import period_tokens
from planner.workload.tail_batching import launched_prompts, launched_samples

FloatArray = npt.NDArray[np.float64]


@dataclass
class Durations:
    """Samples everything once, in a fixed order, so that a seed gives one answer."""

    instance: Instance
    assignment: Assignment
    costs: dict[str, CallCosts]
    """Device call -> its analytic costs, one row."""
    syncs_s: dict[str, float]
    iterations: int
    rng: np.random.Generator

    def __post_init__(self) -> None:
        environment = self.instance.workload.environment
        self.pool = Pool(environment, self.rng)
        self.starts_s: dict[tuple[int, str], float] = {}
        """When each generate call of each iteration started."""
        self.generations = {
            call.name: self._generations(call)
            for call in self.instance.calls
            if call.kind == "generate"
        }

    @cached_property
    def batch_calls(self) -> dict[str, BatchCall]:
        """Training and forward calls."""
        return {
            call.name: BatchCall(
                self._context(call), self.assignment.strategies[call.name], self.costs[call.name]
            )
            for call in self.instance.calls
            if call.kind in ("forward", "train")
        }

    def end_s(self, iteration: int, name: str, start_s: float) -> float:
        """When a call ends that starts at `start_s`; calls are asked for in order."""
        if name in self.syncs_s:
            return start_s + self.syncs_s[name]
        if name in self.generations:
            self.starts_s[iteration, name] = start_s
            return start_s + self.generations[name][iteration].time_s
        if name in self.batch_calls:
            return start_s + self.batch_calls[name].time_s(self._tokens(iteration, name), self.rng)
        return self._scored_s(iteration, name, start_s)

    def _generations(self, call: Call) -> list[Generation]:
        """One for each iteration, drained or flowing, whichever is faster."""
        context = self._context(call)
        workload, stale = context.workload, self.assignment.staleness
        if workload.tail_batching is not None and call.role == "actor":
            return self._rounds(context, self.assignment.strategies[call.name])
        prices = replica_prices(
            context, self.assignment.strategies[call.name], self.costs[call.name]
        )
        # Rounds of dynamic sampling are a mean; a step has a whole number of them.
        more = self.rng.random(self.iterations) < call.rounds % 1.0
        drained = [
            drain(workload, call.sequences, prices, self.rng, rounds=int(call.rounds) + int(one))
            for one in more
        ]
        if stale == 0 and workload.partial_rollout is None:
            return drained
        flowing = flow(
            workload,
            round(call.sequences * call.rounds),
            prices,
            self.rng,
            in_flight=_in_flight(context) / prices.replicas,
            steps=self.iterations,
        )
        if workload.partial_rollout is not None:
            return flowing
        return min(drained, flowing, key=lambda some: sum(each.time_s for each in some))

    def _rounds(self, context: CallContext, strategy: Strategy) -> list[Generation]:
        """Short and long rounds of tail batching, the long ones at equal distances."""
        workload = context.workload
        (_, short), (share, long) = round_contexts(context)
        row = StrategyArrays.from_strategies([strategy])
        dash, whole = (
            replica_prices(each, strategy, call_costs(each, row)) for each in (short, long)
        )
        marks = np.floor(np.arange(self.iterations + 1) * share + 0.5)
        return [
            drain(long.workload, long.call.sequences, whole, self.rng)
            if is_long
            else race(
                workload,
                launched_prompts(workload),
                launched_samples(workload),
                dash,
                self.rng,
            )
            for is_long in np.diff(marks) > 0
        ]

    def _context(self, call: Call) -> CallContext:
        key, _ = price_key(self.instance, self.assignment, call)
        group = self.instance.cluster.group(key.group)
        return self.instance.context(call, group, key.staleness, beside_trainer=key.beside_trainer)

    def _tokens(self, iteration: int, name: str) -> FloatArray:
        """Tokens of the sequences that a training or forward call reads, [sequences]."""
        call = self.instance.call(name)
        growth = self.instance.workload.context_growth
        # Tail batching defers long prompts and drops none, so what is trained on has all lengths.
        tails = self.instance.workload.tail_batching is not None
        for generate, found in () if tails else self.generations.items():
            batch = found[iteration].batch
            own = call.lengths == self.instance.call(generate).lengths
            if own and len(batch.response) >= call.sequences and call.role not in self._replays:
                tokens = batch.prompt + growth * batch.response
                # What dynamic sampling or a selection keeps does not depend on the length.
                return self.rng.permutation(tokens)[: call.sequences]
        # Read from a data set or a replay buffer.
        workload = workload_of(call, self.instance.workload)
        batch = sample_batch(workload, call.sequences, self.rng)
        return batch.prompt + workload.context_growth * batch.response

    @property
    def _replays(self) -> set[str]:
        return set(self.instance.workload.replay_sequences)

    def _scored_s(self, iteration: int, name: str, start_s: float) -> float:
        """When the pool has scored the last response of the iteration."""
        arrivals = [
            self.starts_s[iteration, generate] + found[iteration].end_s
            for generate, found in self.generations.items()
            if generate in self.instance.graph.predecessors(name)
        ]
        count = self.instance.call(name).sequences
        times = np.sort(np.concatenate(arrivals)) if arrivals else np.full(count, start_s)
        return max(start_s, float(self.pool.score(times).max()))


def _in_flight(context: CallContext) -> float:
    """Responses that a flow runs at most, all replicas together; see `cost.generate`.

    At most `staleness` batches, and so few that the longest response does not take more than
    1 + staleness of them (Little's law). With partial rollouts: the mean over a step
    (`workload.partial`).
    """
    lengths = context.workload.response_length
    mean = float(limited_moment(lengths, lengths.max_tokens, 1))
    longest = float(expected_maximum(lengths, context.call.sequences))
    share = context.workload.partial_rollout
    if share is not None:
        return mean / period_tokens(lengths, longest, share) * context.call.sequences
    stale = float(context.staleness)
    return min(stale, (1.0 + stale) * mean / longest) * context.call.sequences
