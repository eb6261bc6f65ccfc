"""Measures a few points on this CPU: FOLDER MOST; run alone or under torchrun.

At most MOST points, as if killed then; exits with an error when a point of an earlier run is
measured again, or a time makes no sense.
"""

from __future__ import annotations

import sys
from pathlib import Path

from planner.measure.bench.journal import Journal
from planner.measure.bench.machine import close_machine, open_machine
from planner.measure.bench.points import Grids, points
from planner.measure.bench.run import run_points

GRID = Grids(
    gemm_rows=(1, 128),
    gemm_sizes=(64, 256),
    head_dims=(32,),
    prefill_tokens=(64,),
    prefill_rows=(2,),
    decode_context=(64,),
    decode_rows=(2,),
    groups=(1, 2),
    elementwise=((64, 128, 256),),
    loss=(64, 256),
    stream_bytes=(2**22,),
    message_elements=(2**8, 2**14),
)

folder, most = Path(sys.argv[1]), int(sys.argv[2])
machine = open_machine("cpu", 1)
try:
    listed = list(points("cpu", GRID, node_ranks=machine.node_ranks))
    path = folder / "journal.jsonl" if machine.rank == 0 else None
    journal = Journal(path, machine.description())
    before = dict(journal.samples)
    skipped = run_points(machine, listed[:most], journal, budget_s=0.01)
    if machine.rank == 0:
        assert not skipped, skipped
        assert set(journal.samples) == {point.key for point in listed[:most]}
        assert all(journal.samples[key] == one for key, one in before.items())
        assert all(len(one.rank_s) == machine.world for one in journal.samples.values())
        times = {point.kernel: journal.samples[point.key].seconds for point in listed[:most]}
        if "gemm" in times:  # the largest product takes longer than a kernel that does nothing
            assert times["gemm"] > times["small_kernel"]
        assert all(0.0 < one.seconds < 1.0 for one in journal.samples.values())
finally:
    close_machine(machine)
