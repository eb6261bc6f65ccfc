"""The kernels themselves, in torch: each point becomes a function that runs it once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from planner.measure.bench.machine import Machine
from planner.measure.bench.points import Point

Run = Callable[[], Any]
_MOST_COPIES = 256


def runner(machine: Machine, point: Point) -> Run:
    """A function that runs a kernel once; its operands are made here, not in it."""
    run: Run = _MAKERS[point.kernel](machine, *point.shape)
    if not point.kernel.startswith(("layer_elementwise", "loss", "launch", "host_", "device_")):
        vars(run)["can_capture"] = True
    return run


def _cold(machine: Machine, nbytes: float, make: Callable[[], Any]) -> list[Any]:
    """Copies of an operand of `nbytes`, together more than the caches hold."""
    copies = int(min(machine.cold_bytes // max(nbytes, 1) + 2, _MOST_COPIES))
    first = make()
    return [first, *(first.clone() for _ in range(copies - 1))]


def _random(machine: Machine, *shape: int) -> Any:
    return machine.torch.randn(*shape, device=machine.device, dtype=machine.dtype)


def _rotating(call: Callable[[Any], Any], operands: Sequence[Any]) -> Run:
    """Calls with the operands in turn. They ask for no gradients, so none are recorded."""
    turn = itertools.cycle(operands)

    def run() -> None:
        call(next(turn))

    return run


def _gemm(machine: Machine, m: int, n: int, k: int) -> Run:
    linear = machine.torch.nn.functional.linear
    x = _random(machine, m, k)
    weights = _cold(machine, n * k * machine.dtype.itemsize, lambda: _random(machine, n, k))
    return _rotating(lambda weight: linear(x, weight), weights)


def _prefill(machine: Machine, head_dim: int, tokens: int, rows: int, group: int) -> Run:
    attention = machine.torch.nn.functional.scaled_dot_product_attention
    heads = max(rows, group)
    kv_heads = max(heads // group, 1)
    query = _random(machine, 1, heads, tokens, head_dim)
    key, value = (_random(machine, 1, kv_heads, tokens, head_dim) for _ in range(2))
    gqa = {"enable_gqa": True} if heads != kv_heads else {}
    return _rotating(lambda q: attention(q, key, value, is_causal=True, **gqa), [query])


def _decode(machine: Machine, head_dim: int, context: int, rows: int, group: int) -> Run:
    attention = machine.torch.nn.functional.scaled_dot_product_attention
    query = _random(machine, rows, group, 1, head_dim)
    size = 2 * rows * context * head_dim * machine.dtype.itemsize
    caches = _cold(machine, size, lambda: _random(machine, 2, rows, 1, context, head_dim))
    gqa = {"enable_gqa": True} if group > 1 else {}
    return _rotating(lambda kv: attention(query, kv[0], kv[1], **gqa), caches)


def _layer_elementwise(
    machine: Machine, tokens: int, hidden: int, ffn: int, *, backward: bool = False
) -> Run:
    """Everything of a layer but its products and attention core, as eager torch runs it: two norms,
    two residual additions, rotary embedding of queries and keys, gated activation.

    With `backward` forward and backward pass, else the forward pass alone.
    """
    torch = machine.torch
    one, two = (_random(machine, tokens, hidden) for _ in range(2))
    gate_up = _random(machine, tokens, 2 * ffn)
    qkv = _random(machine, tokens, 3 * hidden)
    cos, sin = (_random(machine, tokens, 1, 32) for _ in range(2))
    weight = _random(machine, hidden)
    inputs = (one, two, gate_up, qkv, weight)

    def forward() -> tuple[Any, ...]:
        h, attended, wide, packed, scale = inputs
        first = torch.nn.functional.rms_norm(h, (hidden,), scale)
        query, key, value = packed.view(tokens, 3, hidden // 64, 64).unbind(1)
        h = h + attended
        second = torch.nn.functional.rms_norm(h, (hidden,), scale)
        gate, up = wide.chunk(2, dim=-1)
        active = torch.nn.functional.silu(gate) * up
        turned = rotary(torch, query, cos, sin), rotary(torch, key, cos, sin), value
        return (first, *turned, second, active, h + attended)

    if not backward:
        return _rotating(lambda _: forward(), [None])
    for tensor in inputs:
        tensor.requires_grad_()
    gradients = [torch.ones_like(tensor) for tensor in forward()]

    def both() -> None:
        torch.autograd.grad(forward(), inputs, gradients)

    return both


def _loss(machine: Machine, tokens: int, vocabulary: int) -> Run:
    """Cross-entropy in fp32, forward and backward."""
    torch = machine.torch
    logits = _random(machine, tokens, vocabulary).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), device=machine.device)
    loss = torch.nn.functional.cross_entropy

    def run() -> None:
        torch.autograd.grad(loss(logits.float(), targets), logits)

    return run


def rotary(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding of [tokens, heads, size] by halves (arXiv:2104.09864)."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def _copy(machine: Machine, nbytes: int) -> Run:
    return _stream(machine, nbytes, 2, lambda a, b, _: b.copy_(a))


def _add(machine: Machine, nbytes: int) -> Run:
    torch = machine.torch
    return _stream(machine, nbytes, 3, lambda a, b, c: torch.add(a, b, out=c))


def _read(machine: Machine, nbytes: int) -> Run:
    return _stream(machine, nbytes, 1, lambda a, _b, _c: a.sum())


def _stream(machine: Machine, nbytes: int, arrays: int, call: Callable[..., Any]) -> Run:
    """A pass over `nbytes` bytes in all, read or written."""
    size = nbytes // arrays // machine.dtype.itemsize
    data = [_random(machine, size) for _ in range(arrays)]
    data += data[:1] * (3 - arrays)
    return _rotating(lambda _: call(*data), [None])


def _small_kernel(machine: Machine) -> Run:
    """Dependent kernels that hardly do anything."""
    x = _random(machine, 1)
    return _rotating(lambda _: x.add_(1.0), [None])


def _launch(machine: Machine) -> Run:
    """The same, launched one by one by the host with gradients recorded."""
    x = _random(machine, 1).requires_grad_()
    return lambda: x * 1.0


def _host_to_device(machine: Machine, nbytes: int) -> Run:
    host, device = _pinned_pair(machine, nbytes)
    return lambda: device.copy_(host, non_blocking=True)


def _device_to_host(machine: Machine, nbytes: int) -> Run:
    host, device = _pinned_pair(machine, nbytes)
    return lambda: host.copy_(device, non_blocking=True)


def _pinned_pair(machine: Machine, nbytes: int) -> tuple[Any, Any]:
    torch = machine.torch
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    return host, torch.empty(nbytes, dtype=torch.uint8, device=machine.device)


_MAKERS: dict[str, Callable[..., Any]] = {
    "gemm": _gemm,
    "prefill": _prefill,
    "decode": _decode,
    "layer_elementwise": _layer_elementwise,
    "layer_elementwise_backward": partial(_layer_elementwise, backward=True),
    "loss": _loss,
    "copy": _copy,
    "add": _add,
    "read": _read,
    "small_kernel": _small_kernel,
    "launch": _launch,
    "host_to_device": _host_to_device,
    "device_to_host": _device_to_host,
}
