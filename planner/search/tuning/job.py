"""One run of a user's command, so that its result outlives the process that started it.

The command runs in a shell of its own session, writes to a file, and the shell leaves its process
id and, at the end, the exit code beside it. Whoever comes later (the same tuner, or the next one
after a kill) finds out from the folder alone whether the job runs, has ended, or died.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.search.tuning.measured import LogFigures, Measured, Status

LOG, EXIT, PID = "log.txt", "exit", "pid"
PLACEHOLDERS = ("config", "script", "dir", "trial")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_SHELL = """
printf '%s\\n' "$$" > "$2/pid.new" && mv "$2/pid.new" "$2/pid"
/bin/sh -c "$1" > "$2/log.txt" 2>&1 < /dev/null
code=$?
printf '%s\\n' "$code" > "$2/exit.new" && mv "$2/exit.new" "$2/exit"
"""
_POLL_S = 0.05
_SLOW_POLL_S = 1.0
_GRACE_S = 10.0
"""From the polite signal to the other one."""
_BIRTH_S = 2.0
"""A shell that was started has left its process id by then."""
_LOG_BYTES = 64 * 2**20
_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|OOM[- ]?kill|CUBLAS_STATUS_ALLOC_FAILED"
    r"|No available memory for the cache blocks|less than desired GPU memory utilization",
    re.IGNORECASE,
)
_MIN_STEPS_BY_TIMEOUT = 2
"""A job that was stopped while it trained is measured if it got so far."""


def fill(command: str, values: Mapping[str, str]) -> str:
    """The user's command with {config}, {script}, {dir} and {trial} put in, quoted for the shell.

    Other braces stay. Raises InputError where a placeholder stands inside quotes and the value
    would need some of its own.
    """
    found, end, quote = [], 0, ""
    for match in _PLACEHOLDER.finditer(command):
        between = command[end : match.start()]
        quote = _quote_after(between, quote)
        value = values.get(match.group(1))
        if value is None:
            raise InputError(
                f"{match.group(0)} does not exist for this launcher",
                where="--command",
                remedy="Use " + ", ".join(f"{{{name}}}" for name in sorted(values)),
            )
        quoted = shlex.quote(value)
        if quote and quoted != value:
            raise InputError(
                f"{match.group(0)} stands inside quotes, but its value {value!r} needs quoting",
                where="--command",
                remedy="Write it outside of quotes, or choose a plain --output",
            )
        found += [between, quoted]
        end = match.end()
    return "".join([*found, command[end:]])


def _quote_after(text: str, quote: str) -> str:
    """The quote that is open after `text` when `quote` was open before it."""
    escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return quote


@dataclass(frozen=True)
class Job:
    """A command's run in a folder."""

    folder: Path

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Run the command by a shell in a session of its own, in the current folder."""
        return subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "rlmplan-job", command, str(self.folder.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def exit_code(self) -> int | None:
        """The command's, None while it runs or when it died without one."""
        try:
            return int((self.folder / EXIT).read_text())
        except (OSError, ValueError):
            return None

    @property
    def started_at(self) -> float | None:
        """Seconds since the epoch; None when it never started."""
        return _modified(self.folder / PID)

    @property
    def wall_s(self) -> float:
        """From the start to the end, or until now."""
        begin = self.started_at
        if begin is None:
            return 0.0
        return max(0.0, (_modified(self.folder / EXIT) or time.time()) - begin)

    def alive(self) -> bool:
        """Whether its shell runs on this machine."""
        pid = self._pid()
        if pid is None:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        # The number may have gone to another process since.
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return not Path("/proc/self").exists()
        return os.fsencode(self.folder.resolve()) in words

    def wait(
        self,
        timeout_s: float,
        *,
        process: subprocess.Popen[bytes] | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait for the end; True when it was in time. `beat` is called every second or so.

        `process` is given by who started it; a job that was found is followed by its folder. One
        that takes too long is ended with all its children.
        """
        begin, beaten = time.monotonic(), time.monotonic()
        already_s = self.wall_s if process is None else 0.0
        while self.exit_code is None:
            now = time.monotonic()
            if process is not None and process.poll() is not None:
                break
            if process is None and now - begin > _BIRTH_S and not self.alive():
                break
            if now - begin + already_s > timeout_s:
                if self.exit_code is None:
                    self.stop(process)
                    return False
                break
            if now - beaten > _SLOW_POLL_S:
                beaten = now
                beat()
            time.sleep(_POLL_S)
        if process is not None:
            process.wait()
        return True

    def stop(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """End the job and all its children."""
        pid = process.pid if process is not None else self._pid()
        if pid is None or (process is None and not self.alive()):
            return
        for sign, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, sign)
            until = time.monotonic() + patience_s
            while time.monotonic() < until:
                if process is not None:
                    process.poll()
                if not _group_alive(pid):
                    return
                time.sleep(_POLL_S)

    def log(self) -> str:
        """The end of what the command wrote."""
        try:
            with (self.folder / LOG).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""

    def outcome(self, read: Callable[[str], LogFigures], *, in_time: bool = True) -> Measured:
        """What the run showed."""
        text, code, wall_s = self.log(), self.exit_code, self.wall_s
        figures = read(text)
        enough = len(figures.steps_s) >= (1 if in_time else _MIN_STEPS_BY_TIMEOUT)
        status: Status = "ok"
        message = ""
        if in_time and code != 0:
            status = "crash"
            message = "died" if code is None else f"exit code {code}"
        elif not enough:
            status = "no figure" if in_time else "timeout"
            message = "" if in_time else f"stopped after {wall_s:.0f} s"
        if status != "ok" and _MEMORY.search(text):
            status = "out of memory"
        if status != "ok":
            message = ": ".join(filter(None, [message, _last_line(text)]))
            return Measured(status, message=message, wall_s=wall_s)
        # The first step compiles, warms up and captures graphs.
        steps = figures.steps_s[1:] or figures.steps_s
        mean = sum(steps) / len(steps)
        spread = None
        if len(steps) > 1:
            variance = sum((each - mean) ** 2 for each in steps) / (len(steps) - 1)
            spread = variance**0.5 / mean
        stages = {}
        for name, times in figures.stages_s.items():
            own = times[1:] if len(times) > 1 and len(figures.steps_s) > 1 else times
            if own:
                stages[name] = sum(own) / len(own)
        return Measured(
            "ok", mean, stages, figures.peak_memory_bytes, len(steps), spread, "", wall_s
        )

    def _pid(self) -> int | None:
        try:
            return int((self.folder / PID).read_text())
        except (OSError, ValueError):
            return None


def _group_alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
