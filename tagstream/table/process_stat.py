"""What the kernel says of a process on this machine."""

from __future__ import annotations


def process_stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` from the state on (the third of proc(5)); None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            # The command's name before may hold blanks and brackets: fields count from the last bracket.
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None
