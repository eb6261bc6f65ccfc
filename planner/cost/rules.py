"""Legality rules: parsed once, run over arrays of strategies, without `eval`.

A rule is an expression in a small subset of Python's syntax that must be true for every legal
strategy. The same compiled rule masks hundreds of thousands of candidates in the search and
explains one strategy in a check, so the two can never disagree.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Literal

import numpy as np

from planner.cost.arrays import (
    CODED,
    BoolArray,
    decode,
)
from planner.cost.rule_values import RULE_NAMES, Values
from planner.errors import InputError
from planner.schema import Rule, SearchSpace
from planner.schema.workload import CallKind

_BOOLEAN = {
    *("sequence_parallel", "packing", "optimizer_on_cpu"),
    *("is_moe", "is_mla", "mlp_bias", "has_critic"),
}
_TEXT: dict[str, tuple[str, ...]] = {
    **CODED,
    "placement": ("colocated", "disaggregated", "free"),
    "old_logprobs": ("recompute", "engine", "either", "skip"),
    "role": (),  # any text: algorithms may add roles
}

_Kind = Literal["number", "boolean", "text"]
_Run = Callable[[Values], Any]

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"min": np.minimum, "max": np.maximum}
_ALLOWED = (
    "Use numbers, names, text in quotes, + - * / // %, comparisons, `in (...)`, "
    "and/or/not, `a if c else b`, min(...) and max(...)."
)


@dataclass(frozen=True)
class Expression:
    """A compiled Boolean expression."""

    text: str
    names: frozenset[str]
    """Names that it reads."""
    run: _Run

    def mask(self, values: Values, n: int) -> BoolArray:
        """True where the expression holds; shape [n].

        Division by zero gives an undefined number there, not an error: guard it with `or`.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.broadcast_to(np.asarray(self.run(values), dtype=np.bool_), (n,))


@dataclass(frozen=True)
class CompiledRule:
    """A rule with its compiled check."""

    rule: Rule
    check: Expression

    def message(self, values: Values, index: int = 0) -> str:
        """The rule's message, names in braces filled in, with the remedy and the source."""
        filled = string.Formatter().vformat(self.rule.message, (), _Shown(values, index))
        return f"{filled.rstrip('.')}. {self.rule.remedy.rstrip('.')}. [{self.rule.source}]"


def compile_expression(text: str, where: str) -> Expression:
    """Parse a Boolean expression over RULE_NAMES.

    Raises InputError, naming `where`, for forbidden syntax, unknown names, text that a field
    cannot hold, and expressions that are not Boolean.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(
            f"{text!r} cannot be read: {reason}", where=where, remedy=_ALLOWED
        ) from None
    builder = _Builder(text, where)
    kind, run = builder.build(tree.body)
    if kind != "boolean":
        raise builder.error(f"{text!r} is {kind}, not true or false", "Compare it with something.")
    return Expression(text, frozenset(builder.names), run)


def compile_rules(space: SearchSpace) -> tuple[CompiledRule, ...]:
    """All rules of a search space, compiled; InputError names the space and the rule."""
    return compile_rule_list(space.rules, f"search space {space.name}")


@lru_cache(maxsize=64)
def compile_rule_list(rules: tuple[Rule, ...], where: str) -> tuple[CompiledRule, ...]:
    """Rules compiled in order; InputError names `where` and the rule's id."""
    compiled = []
    for rule in rules:
        place = f"{where}: rule {rule.id}"
        expression = compile_expression(rule.check, place)
        for _, field, spec, conversion in string.Formatter().parse(rule.message):
            if field is not None and (field not in RULE_NAMES or spec or conversion):
                raise InputError(
                    f"the message names {{{field}}}, which no rule can see",
                    where=place,
                    remedy=f"Known names: {', '.join(RULE_NAMES)}.",
                )
        compiled.append(CompiledRule(rule, expression))
    return tuple(compiled)


def rules_for(rules: Iterable[CompiledRule], kind: CallKind) -> tuple[CompiledRule, ...]:
    """The rules that apply to one kind of call."""
    return tuple(rule for rule in rules if kind in rule.rule.calls)


class _Shown(Mapping[str, Any]):
    """Values as a person reads them, for messages."""

    def __init__(self, values: Values, index: int):
        self._values = values
        self._index = index

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if isinstance(value, np.ndarray):
            value = value[self._index]
        if name in CODED:
            return decode(name, value)
        return value.item() if isinstance(value, np.generic) else value

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Builder:
    """Turns a syntax tree into closures and infers each part's kind."""

    def __init__(self, text: str, where: str):
        self.text = text
        self.where = where
        self.names: set[str] = set()

    def error(self, message: str, remedy: str = _ALLOWED) -> InputError:
        return InputError(message, where=self.where, remedy=remedy)

    def build(self, node: ast.expr) -> tuple[_Kind, _Run]:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name():
                return self._name(node)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._arithmetic(node)
            case ast.UnaryOp(op=ast.USub()):
                run = self._expect(node.operand, "number")
                return "number", lambda values: -run(values)
            case ast.UnaryOp(op=ast.Not()):
                run = self._expect(node.operand, "boolean")
                return "boolean", lambda values: np.logical_not(run(values))
            case ast.BoolOp():
                return self._boolean(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.Call():
                return self._function(node)
        part = ast.unparse(node)
        raise self.error(f"{part!r} is not allowed in a rule")

    def _constant(self, node: ast.Constant) -> tuple[_Kind, _Run]:
        value = node.value
        if isinstance(value, bool):
            return "boolean", lambda values: np.bool_(value)
        if isinstance(value, int | float):
            if abs(value) >= 2**53:
                raise self.error(f"{value} is too large")
            number = np.float64(value) if isinstance(value, float) else np.int64(value)
            return "number", lambda values: number
        raise self.error(
            f"{value!r} stands alone", "Text is only compared with a field: recompute == 'full'."
        )

    def _name(self, node: ast.Name) -> tuple[_Kind, _Run]:
        name = node.id
        if name not in RULE_NAMES:
            raise self.error(
                f"{self.text!r} uses the unknown name {name!r}",
                f"Known names: {', '.join(RULE_NAMES)}.",
            )
        self.names.add(name)
        if name in _TEXT:
            raise self.error(f"{name} is text", f"Compare it with text in quotes: {name} == '...'.")
        kind: _Kind = "boolean" if name in _BOOLEAN else "number"
        return kind, lambda values: np.asarray(values[name])

    def _arithmetic(self, node: ast.BinOp) -> tuple[_Kind, _Run]:
        apply = _ARITHMETIC[type(node.op)]
        left, right = self._expect(node.left, "number"), self._expect(node.right, "number")
        return "number", lambda values: apply(left(values), right(values))

    def _boolean(self, node: ast.BoolOp) -> tuple[_Kind, _Run]:
        apply = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        parts = [self._expect(part, "boolean") for part in node.values]
        return "boolean", lambda values: reduce(apply, [part(values) for part in parts])

    def _comparison(self, node: ast.Compare) -> tuple[_Kind, _Run]:
        operands = [node.left, *node.comparators]
        links = [
            self._link(op, left, right)
            for op, left, right in zip(node.ops, operands, operands[1:], strict=False)
        ]
        if len(links) == 1:
            return "boolean", links[0]
        return "boolean", lambda values: reduce(np.logical_and, [link(values) for link in links])

    def _link(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> _Run:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
                raise self.error("`in` needs a list of choices", "Write: tp in (1, 2, 4).")
            equal = [self._link(ast.Eq(), left, choice) for choice in right.elts]
            if isinstance(op, ast.In):
                return lambda values: reduce(np.logical_or, [e(values) for e in equal])
            return lambda values: np.logical_not(reduce(np.logical_or, [e(values) for e in equal]))
        apply = _COMPARISONS.get(type(op))
        if apply is None:
            raise self.error(f"{ast.unparse(ast.Compare(left, [op], [right]))!r} is not allowed")
        for name, constant in ((left, right), (right, left)):
            if isinstance(name, ast.Name) and name.id in _TEXT:
                return self._text_link(op, name.id, constant, apply)
        kind_left, run_left = self.build(left)
        kind_right, run_right = self.build(right)
        if kind_left != kind_right:
            raise self.error(f"{ast.unparse(left)!r} and {ast.unparse(right)!r} do not compare")
        return lambda values: apply(run_left(values), run_right(values))

    def _text_link(
        self, op: ast.cmpop, name: str, constant: ast.expr, apply: Callable[[Any, Any], Any]
    ) -> _Run:
        choices = _TEXT[name]
        if not isinstance(op, ast.Eq | ast.NotEq):
            raise self.error(f"{name} is text", "Use == or !=.")
        if not isinstance(constant, ast.Constant) or not isinstance(constant.value, str):
            raise self.error(f"{name} is text", f"Compare it with text in quotes: {name} == '...'.")
        text = constant.value
        if choices and text not in choices:
            raise self.error(f"{name} is never {text!r}", f"It is one of {', '.join(choices)}.")
        self.names.add(name)
        if name in CODED:
            code = choices.index(text)
            return lambda values: apply(np.asarray(values[name]), code)
        return lambda values: np.bool_(apply(values[name], text))

    def _conditional(self, node: ast.IfExp) -> tuple[_Kind, _Run]:
        test = self._expect(node.test, "boolean")
        kind, run_true = self.build(node.body)
        run_false = self._expect(node.orelse, kind)
        return kind, lambda values: np.where(test(values), run_true(values), run_false(values))

    def _function(self, node: ast.Call) -> tuple[_Kind, _Run]:
        if (
            not isinstance(node.func, ast.Name)
            or node.func.id not in _FUNCTIONS
            or node.keywords
            or len(node.args) < 2
        ):
            raise self.error(f"{ast.unparse(node)!r} is not allowed in a rule")
        apply = _FUNCTIONS[node.func.id]
        parts = [self._expect(part, "number") for part in node.args]
        return "number", lambda values: reduce(apply, [part(values) for part in parts])

    def _expect(self, node: ast.expr, kind: _Kind) -> _Run:
        found, run = self.build(node)
        if found != kind:
            raise self.error(f"{ast.unparse(node)!r} is {found}, a {kind} is needed here")
        return run
