"""What the measured cases say about errors of groups of cases, for the page of accuracy.

Remarks for readers, by the start of a case's id; predictions do not depend on them.
"""

from __future__ import annotations

_NOTES: dict[str, str] = {}


def note(case_id: str) -> str:
    """The remark for a case, or nothing."""
    return next((text for start, text in _NOTES.items() if case_id.startswith(start)), "")
