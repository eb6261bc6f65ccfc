"""Profile files with newly fitted values; all else in them stays as it is."""

from __future__ import annotations

from collections.abc import Mapping


def rewritten(text: str, values: Mapping[str, float], error: float | None, source: str) -> str:
    """A profile file's text with new values and relative error; all else stays as it is."""
    lines = text.splitlines()
    constant: str | None = None
    for index, line in enumerate(lines):
        stripped = line.strip()
        if line.startswith("  ") and not line.startswith("   ") and stripped.endswith(":"):
            constant = stripped[:-1]
        elif constant is not None and constant in values and stripped.startswith("value:"):
            lines[index] = f"    value: {number(values[constant])}"
        elif error is not None and line.startswith("relative_error:"):
            lines[index] = f"relative_error: {error:.3f}"
        elif error is not None and line.startswith("relative_error_source:"):
            lines[index] = f'relative_error_source: "{source}"'
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Three significant digits as YAML reads a float."""
    text = f"{value:.3g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{mantissa}e{int(exponent):+d}"
    return text if "." in text else f"{text}.0"
