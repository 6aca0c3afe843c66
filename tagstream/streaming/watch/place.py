"""Where a run is, for people who look for it: its host, its process, and what has its log lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping


def log_place(env: Mapping[str, str], host: str, pid: int, descriptor: int = 2) -> str:
    """Where standard error goes: a file, the journal, a pod's log, a terminal, or a pipe to who started the process."""
    try:
        found = os.fstat(descriptor)
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    if env.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}":  # set by systemd where it has connected the two
        return f"the journal: journalctl _PID={pid}"
    if stat.S_ISREG(found.st_mode):
        return target
    if env.get("KUBERNETES_SERVICE_HOST"):
        return f"the pod's: kubectl logs {host} (--previous: of the run before)"
    if stat.S_ISCHR(found.st_mode):
        return "nowhere (/dev/null)" if target == "/dev/null" else f"the terminal {target}"
    return "what the process was started by: its standard error is a pipe"
