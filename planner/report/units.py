"""Numbers for people: the one place that turns SI quantities into text."""

from __future__ import annotations

GIB = 1024.0**3


def seconds(value: float) -> str:
    """Seconds with three significant digits: "0.034 s", "12.3 s", "1,240 s"."""
    if value >= 1000:
        return f"{value:,.0f} s"
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 10:
        return f"{value:.1f} s"
    return f"{value:.2f} s" if value >= 0.1 or value == 0 else f"{value:.2g} s"


def short(value: float) -> str:
    """Three significant digits without an exponent: "0.034", "12.3", "1,940"."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def gib(value_bytes: float) -> str:
    """Bytes in GiB, one decimal below 1,000: "61.2 GiB"."""
    value = value_bytes / GIB
    return f"{value:,.0f} GiB" if value >= 1000 else f"{value:.1f} GiB"


def count(value: float) -> str:
    """A large count: "30.5 B", "151 M"."""
    for factor, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {letter}"
    return f"{value:.4g}"


def dollars(value: float | None) -> str:
    """US dollars with cents below 100, or "-" when unknown."""
    if value is None:
        return "-"
    return f"${value:,.0f}" if value >= 100 else f"${value:.2f}"


def percent(fraction: float) -> str:
    """A fraction as per cent: "0.4 %", "12 %"."""
    value = 100 * fraction
    return f"{value:.0f} %" if abs(value) >= 10 else f"{value:.1f} %"


def rate(value: float, unit: str) -> str:
    """A rate with its unit: "2.5 PFLOP/s", "900 GB/s"."""
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.4g} {letter}{unit}"
    return f"{value:.4g} {unit}"
