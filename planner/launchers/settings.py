"""A launcher's settings as somebody wrote them: typed look-ups that remember what was read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.launchers.interpolation import UnresolvedError, resolve
from planner.launchers.shell import Unknown

_INT = re.compile(r"[+-]?\d+(_\d+)*")


@dataclass(frozen=True)
class Given:
    """One setting: a dotted key or a flag without its dashes, its value, and where it stands."""

    key: str
    value: Any
    where: str
    literal: bool = False
    """True when `${` in the value is just text (a flag's), not a reference to another setting."""
    added: bool = False
    """True when the launcher was told to take a key that it does not have (Hydra's ``+key``)."""


@dataclass(frozen=True)
class NotUnderstood:
    """A setting that the prediction does not rest on."""

    key: str
    value: Any
    where: str
    reason: str
    """Why: the launcher has no such key, or the planner does not model it."""
    unknown: bool = False
    """The launcher has no such key, and was not told to take it."""


@dataclass(frozen=True)
class Broken:
    """A rule that a configuration breaks, found while it was read or checked."""

    rule: str
    """The rule's id."""
    message: str
    """What is wrong, with the values."""
    keys: tuple[str, ...]
    """Settings that the rule reads, in the launcher's words; the ones to change first."""
    nearest: tuple[str, ...] = ()
    """Changes of one setting that make it legal, ``key=value``, nearest first."""
    source: str = ""
    """Where the launcher enforces it."""
    call: str = ""
    """The call that it concerns; empty for the whole configuration."""


@dataclass(frozen=True)
class KeyList:
    """The settings that a launcher has, with their defaults."""

    source: str
    """Release and files that they were read from."""
    defaults: Mapping[str, Any]
    """Key -> default; text may hold `${...}` references to other keys."""
    open_sections: tuple[str, ...] = ()
    """Sections that take any key: all below a dotted name, or all that begin with a name in "-"."""

    def knows(self, key: str) -> bool:
        """True for a key of the launcher, a section of such keys, or one of an open section."""
        return (
            key in self.defaults
            or any(known.startswith(f"{key}.") for known in self.defaults)
            or any(
                key == name or key.startswith(name if name.endswith("-") else f"{name}.")
                for name in self.open_sections
            )
        )


class Settings:
    """Given settings over a launcher's defaults; of two settings of a key the later one holds.

    Every look-up marks its key as read; `not_understood` lists the others, so that nothing that
    somebody wrote is dropped in silence. Look-ups raise InputError that names the place when a
    value has the wrong type. Rules found broken on the way are collected in `broken`. `strict` says
    that the launcher refuses keys that it does not have.
    """

    def __init__(self, given: Iterable[Given], keys: KeyList, *, strict: bool = False):
        self.keys = keys
        self.strict = strict
        self._given: dict[str, Given] = {}
        for item in given:
            for old in [key for key in self._given if key.startswith(f"{item.key}.")]:
                del self._given[old]  # a whole section was replaced
            self._given.pop(item.key, None)
            self._given[item.key] = item
        self._read: set[str] = set()
        self._following: list[str] = []
        self._partly: dict[str, str] = {}
        self.broken: list[Broken] = []
        self.notes: list[str] = []

    def given(self, key: str) -> bool:
        """True when the setting was written down (not marked as read)."""
        return key in self._given

    def where(self, key: str) -> str:
        """The place of a setting, for messages."""
        item = self._given.get(key)
        return f"{item.where}: {key}" if item else f"default of {key}"

    def raw(self, key: str) -> Any:
        """The value, references to other settings followed; None when nothing sets it."""
        self._read.add(key)
        item = self._given.get(key)
        value = item.value if item else self.keys.defaults.get(key)
        if isinstance(value, Unknown):
            raise InputError(
                f"the value of {value.text} is not known here",
                where=self.where(key),
                remedy=f"Give it with --set {key}=VALUE.",
            )
        if not isinstance(value, str) or (item and item.literal):
            return value
        if key in self._following:
            raise InputError("refers to itself", where=self.where(key))
        self._following.append(key)
        try:
            return resolve(value, key, self.raw)
        except UnresolvedError as error:
            raise InputError(
                f"the value of {error} is not known here",
                where=self.where(key),
                remedy=f"Give it with --set {key}=VALUE.",
            ) from None
        finally:
            self._following.pop()

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text, or None when it is null or absent."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, str | int | float):
            return str(value)
        raise self._wrong(key, value, "a text")

    def integer(self, key: str, default: int | None = None, *, low: int = 1) -> int:
        """A whole number of at least `low`; InputError when it is absent without a default."""
        found = self.optional_integer(key, low=low)
        if found is None:
            found = default
        if found is None:
            raise InputError("is not given", where=self.where(key), remedy=f"Set {key}.")
        return found

    def optional_integer(self, key: str, *, low: int = 1) -> int | None:
        """A whole number of at least `low`, or None."""
        value = self.raw(key)
        if value is None or value == "":
            return None
        if isinstance(value, str) and _INT.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        if not low <= value < 2**53:
            raise self._wrong(key, value, f"at least {low}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number; InputError when it is absent without a default."""
        value = self.raw(key)
        if value is None:
            value = default
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self._wrong(key, value, "a number") from None
        if value is None or isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        if value != value or value in (float("inf"), float("-inf")):
            raise self._wrong(key, value, "a finite number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        if isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        raise self._wrong(key, value, "true or false")

    def choice(self, key: str, allowed: Mapping[str, Any], default: str | None = None) -> Any:
        """What the text stands for in `allowed`; InputError that lists the allowed texts."""
        value = self.text(key, default)
        if value is None or value not in allowed:
            raise InputError(
                f"{value!r} cannot be read here",
                where=self.where(key),
                remedy=f"The planner knows {', '.join(allowed)}.",
            )
        return allowed[value]

    def ignore(self, *prefixes: str) -> None:
        """Settings that no plan depends on (data, logging): known and left aside, but listed."""
        for key in self._given:
            if key not in self._read and any(
                key == name or key.startswith(f"{name}.") for name in prefixes
            ):
                self._partly.setdefault(key, "no influence on the plan")

    def not_modelled(self, key: str, why: str, unless: Callable[[Any], bool]) -> None:
        """Read a key that the planner knows but does not price, unless its value is harmless."""
        value = self.raw(key)
        if not unless(value):
            self._partly[key] = why
            if not self.given(key):
                self.notes.append(f"{key} = {value}: {why}")

    def not_understood(self) -> tuple[NotUnderstood, ...]:
        """What was written down and does not enter the prediction, in the order given."""
        found = []
        for key, item in self._given.items():
            if key in self._partly:
                found.append(NotUnderstood(key, item.value, item.where, self._partly[key]))
            elif key not in self._read:
                if isinstance(item.value, Unknown):
                    reason = "not known from the script alone"
                elif self.keys.knows(key):
                    reason = "not part of the model of this planner"
                else:
                    hint = "" if item.added else _near_keys(key, self.keys)
                    reason = f"the launcher has no such key ({self.keys.source}). {hint}".strip()
                unknown = not item.added and not self.keys.knows(key)
                found.append(NotUnderstood(key, item.value, item.where, reason, unknown))
        return tuple(found)

    def written(self) -> dict[str, Any]:
        """Key -> value as it was written down, in the order given."""
        return {key: item.value for key, item in self._given.items()}

    def unknown_keys(self) -> tuple[Given, ...]:
        """Settings written down that the launcher does not have."""
        return tuple(item for key, item in self._given.items() if not self.keys.knows(key))

    def refused_keys(self) -> list[Broken]:
        """Settings that make a strict launcher stop, as broken rules."""
        return [
            Broken(
                "unknown-key",
                f"{item.where}: the launcher has no setting {item.key}. "
                f"{_near_keys(item.key, self.keys)}".strip(),
                (item.key,),
                (),
                self.keys.source,
            )
            for item in self.unknown_keys()
            if self.strict and not item.added
        ]

    def effective(self) -> dict[str, Any]:
        """Key -> value, defaults included; references that cannot be followed are left out."""
        found: dict[str, Any] = {}
        marked = set(self._read)
        for key in (*self.keys.defaults, *self._given):
            try:
                found[key] = self.raw(key)
            except InputError:
                continue
        self._read = marked
        return found

    def _wrong(self, key: str, value: Any, wanted: str) -> InputError:
        return InputError(f"{value!r} is not {wanted}", where=self.where(key))


def _near_keys(key: str, keys: KeyList) -> str:
    close = difflib.get_close_matches(key, keys.defaults, n=2, cutoff=0.8)
    return f"Did you mean {' or '.join(close)}?" if close else ""
