"""Run an admin command as a person does, and look at what it printed, returned and left alone."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tagstream.cli.main import main


def run(*argv: object, code: int = 0) -> str:
    """Standard output of a command that must end with this exit code; it is no terminal."""
    out = io.StringIO()
    assert main([str(a) for a in argv], out) == code, out.getvalue()
    return out.getvalue()


def run_json(*argv: object, code: int = 0) -> dict[str, Any]:
    """The JSON document of a command."""
    doc: dict[str, Any] = json.loads(run(*argv, "--json", code=code))
    return doc


def state_of(*folders: Path, leave_out: Iterable[str] = ()) -> dict[str, tuple[int, bytes]]:
    """Modification time (ns) and content of every file and the time of every folder below some folders."""
    found: dict[str, tuple[int, bytes]] = {}
    for top in folders:
        for folder, folders_below, names in os.walk(top):
            folders_below[:] = [name for name in folders_below if name not in leave_out]
            found[folder] = (os.stat(folder).st_mtime_ns, b"")
            for name in names:
                path = Path(folder, name)
                found[str(path)] = (path.stat().st_mtime_ns, path.read_bytes())
    assert found, "there is nothing to compare"
    return found
