"""The temporary folders of tests in memory, where the machine has a disk in memory with room: thousands of small tables are
forced to the disk, which is what a real disk takes a fifth of a run for.

Drills and tests of full disks make disks of their own. ``PYTEST_DEBUG_TEMPROOT``, a variable of pytest, names another place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
VARIABLE = "PYTEST_DEBUG_TEMPROOT"
LEAST_BYTES = 8 << 30


def use_memory() -> None:
    """Let pytest make its temporary folders in memory, if there is enough and nobody has named a place."""
    is_there = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    if VARIABLE not in os.environ and is_there and shutil.disk_usage(MEMORY).free >= LEAST_BYTES:
        os.environ[VARIABLE] = str(MEMORY)
