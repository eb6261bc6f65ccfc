"""Errors that a user can act on.

Every message has three parts: what was given (and where), what would be right, what to do.
"""

from __future__ import annotations


class PlannerError(Exception):
    """Base of all errors that the planner raises on purpose."""

    exit_code = 1


class InputError(PlannerError):
    """Something the user gave is wrong.

    Parameters: `message` says what is wrong; `where` is the file and field
    (``"cluster.yaml: groups[0].nodes"``); `remedy` says what would be right.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, remedy: str | None = None):
        self.message = message
        self.where = where
        self.remedy = remedy
        text = f"{where}: {message}" if where else message
        if remedy:
            text = f"{text.rstrip('.')}. {remedy}"
        super().__init__(text)


class InfeasibleError(PlannerError):
    """No plan exists: says what does not fit, by how much, where, and the smallest known change.

    Inputs were well formed, so the exit code differs from that of bad input.
    """

    exit_code = 3


class PlanningCancelledError(PlannerError):
    """The caller cancelled the search before any feasible plan was found."""

    exit_code = 4
