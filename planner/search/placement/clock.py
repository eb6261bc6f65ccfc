"""When to stop: a deadline and the caller's wish. It never changes a search that finishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# How often the caller's `cancel` is asked while the solver runs.
_POLL_S = 0.05


class CancelledError(Exception):
    """Raised by `Clock.check` when the caller no longer wants the search."""


class Clock:
    """Counts down a deadline and watches for cancellation."""

    def __init__(self, deadline_s: float | None, cancel: Callable[[], bool] | None):
        self._began = time.perf_counter()
        self.limit_s = deadline_s
        """Seconds that the search may take; None without a deadline."""
        self._cancel = cancel
        self.cancelled = False

    @property
    def wall_s(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._began

    @property
    def left_s(self) -> float | None:
        """Seconds to the deadline, not negative; None without a deadline."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.wall_s)

    def stop(self) -> bool:
        """Whether the search must end now."""
        if not self.cancelled and self._cancel is not None and self._cancel():
            self.cancelled = True
        return self.cancelled or self.left_s == 0.0

    def check(self) -> None:
        """Raise CancelledError if the caller cancelled; a deadline raises nothing."""
        self.stop()
        if self.cancelled:
            raise CancelledError

    @contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` from another thread if the caller cancels while the block runs."""
        if self._cancel is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S):
                if self.stop():
                    stop()
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
