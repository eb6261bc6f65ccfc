"""How long every call of every iteration takes: what the loop asks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts
from planner.cost.context import CallContext
from planner.schema import Assignment, Call
from planner.simulate.events.batches import BatchCall
from planner.simulate.events.generation import Generation, drain, flow
from planner.simulate.events.lengths import sample_batch
from planner.simulate.events.pool import Pool
from planner.simulate.events.prices import ReplicaPrices, replica_prices
from planner.simulate.instance import Instance
from planner.workload.lengths import expected_maximum, limited_moment

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
        self.pool = Pool(environment.workers, environment.latency_s)
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
        workload, stale = self.instance.workload, self.assignment.staleness
        prices = self._prices(call)
        drained = [
            drain(workload, call.sequences, prices, self.rng) for _ in range(self.iterations)
        ]
        if stale == 0:
            return drained
        flowing = flow(
            workload,
            call.sequences,
            prices,
            self.rng,
            in_flight=_in_flight(self._context(call), call.sequences / prices.replicas),
            steps=self.iterations,
        )
        return min(drained, flowing, key=lambda some: sum(each.time_s for each in some))

    def _prices(self, call: Call) -> ReplicaPrices:
        strategy = self.assignment.strategies[call.name]
        return replica_prices(self._context(call), strategy, self.costs[call.name])

    def _context(self, call: Call) -> CallContext:
        group = self.instance.cluster.group(self.assignment.meshes[call.name].group)
        return self.instance.context(call, group, self.assignment.staleness)

    def _tokens(self, iteration: int, name: str) -> FloatArray:
        """Tokens of the sequences that a training or forward call reads, [sequences]."""
        count = self.instance.call(name).sequences
        for found in self.generations.values():
            tokens = found[iteration].batch.tokens
            if len(tokens) == count:
                return tokens.astype(np.float64)
        # Preference pairs and the like are read from a data set, not generated.
        return sample_batch(self.instance.workload, count, self.rng).tokens.astype(np.float64)

    def _scored_s(self, iteration: int, name: str, start_s: float) -> float:
        """When the pool has scored the last response of the iteration."""
        arrivals = [
            self.starts_s[iteration, generate] + found[iteration].end_s
            for generate, found in self.generations.items()
            if generate in self.instance.graph.predecessors(name)
        ]
        count = self.instance.call(name).sequences
        times = np.sort(np.concatenate(arrivals)) if arrivals else np.full(count, start_s)
        return max(start_s, float(self.pool.score(times)[-1]))


def _in_flight(context: CallContext, batch: float) -> float:
    """Responses that one replica of a flow runs, at most; see `cost.generate`.

    At most `staleness` batches, and so few that the longest response does not take more than
    1 + staleness of them (Little's law).
    """
    lengths = context.workload.response_length
    mean = float(limited_moment(lengths, lengths.max_tokens, 1))
    longest = float(expected_maximum(lengths, context.call.sequences))
    stale = float(context.staleness)
    return min(stale, (1.0 + stale) * mean / longest) * batch
