"""Step tables: a sum over moments is what its steps take, one by one."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from generation_inputs import TINY, TINY_MOE, context, lognormal

from planner.cost.decode import StepTable, step_table
from planner.cost.engine_kernels import EngineShapes
from planner.cost.weight_formats import uniform
from planner.schema import ModelSpec

SHAPES = EngineShapes(
    tp=np.array([1, 2, 4, 2, 2]), pp=np.array([1, 1, 1, 2, 4]), ep=np.array([1, 2, 8, 4, 2])
)
MOST_TOKENS = 4096.0


def table_of(model: ModelSpec, **constants: float) -> StepTable:
    response = lognormal(400.0, 1600)
    ctx = context(model, response=response, measured=True, constants=constants)
    return step_table(ctx, SHAPES, uniform("bf16"), MOST_TOKENS)


@pytest.mark.parametrize("model", [TINY, TINY_MOE], ids=["dense", "experts"])
@pytest.mark.parametrize("roof_s", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("rows", [1.0, 3.5])
def test_a_sum_over_moments_is_the_sum_of_its_steps(
    model: ModelSpec, roof_s: float, rows: float
) -> None:
    table = table_of(model, host_roof_sequence_s=roof_s)
    rng = np.random.default_rng(0)
    engines, moments, distinct = 40, 9, 6
    shape = rng.integers(len(SHAPES.tp), size=engines)
    row = rng.integers(distinct, size=engines)
    # Beyond the table too: there the lines go on.
    running = np.sort(rng.uniform(1.0, 2.0 * MOST_TOKENS, (distinct, moments)))[:, ::-1]
    kv_tokens = rng.uniform(1.0, 4000.0, running.shape)
    passes = rng.uniform(0.0, 50.0, running.shape)
    tail = running < 0.5 * running[:, :1]

    found = table.sums(shape, row, running, kv_tokens, passes, tail, rows)
    step = table.step(shape, running[row], kv_tokens[row], rows)
    for field in fields(step):
        seconds = passes[row] * getattr(step, field.name)
        expected = [(seconds * ~tail[row]).sum(axis=1), (seconds * tail[row]).sum(axis=1)]
        np.testing.assert_allclose(
            getattr(found, field.name), expected, rtol=1e-9, err_msg=field.name
        )


def test_the_host_sets_the_pace_of_some_steps_in_these_sums() -> None:
    shape, row = np.arange(5), np.zeros(5, dtype=np.int64)
    moments = np.array([[2000.0, 500.0, 20.0, 1.0]])
    arguments = (shape, row, moments, 10.0 * moments, np.ones_like(moments), moments < 0.0)
    free = table_of(TINY, host_roof_sequence_s=0.0).sums(*arguments)
    held = table_of(TINY, host_roof_sequence_s=1e-3).sums(*arguments)
    assert (held.overhead_s[0] > free.overhead_s[0]).all()
    np.testing.assert_allclose(held.weights_s, free.weights_s)


def test_a_chunk_takes_what_its_kernels_and_its_way_through_the_stages_take() -> None:
    table = table_of(TINY)
    tokens = np.array([700.0, 700.0])
    one, four = table.chunk(np.array([1, 4]), tokens).communication_s
    # Two ranks exchange the same in both; only four stages hand the tokens on.
    assert four > one
