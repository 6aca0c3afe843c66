"""Properties files as HoodieStreamer reads them.

One ``key=value`` a line; ``#`` and ``!`` begin a comment; ``include=<file>`` takes another file in at that place, its
path relative to the including file. A backslash is an ordinary character, as it is for HoodieStreamer (a Windows path
or a password keeps its backslashes); only at the end of a line does it continue the value on the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tagstream.table.config import Entry
from tagstream.table.errors import ConfigError


def read_properties(path: Path, rank: int = 0, _seen: tuple[Path, ...] = ()) -> list[Entry]:
    """The entries of ``path`` and of the files it includes, in order; ConfigError names the file and line."""
    resolved = path.resolve()
    if resolved in _seen:
        raise ConfigError(f"properties file {path} includes itself (through {' -> '.join(map(str, _seen))})")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise ConfigError(
            f"cannot read properties file {path}: {e.strerror}; check the path given to --props"
        ) from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"properties file {path} is not UTF-8 (byte {e.start}); save it as UTF-8") from None
    entries: list[Entry] = []
    for number, line in _logical_lines(text):
        origin = f"{path}:{number}"
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # The line itself is not shown: it may be the torn-off half of a password.
            raise ConfigError(f"{origin}: expected key=value; comments begin with #")
        if name.strip() == "include":
            entries += read_properties(path.parent / value.strip(), rank, (*_seen, resolved))
        else:
            entries.append(Entry(name.strip(), value.strip(), origin, rank))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(first line number, text) with continuation lines joined, comments and blank lines left out."""
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not held and (not line or line[0] in "#!"):
            continue
        first = first if held else number
        if line.endswith("\\"):
            held += line[:-1].rstrip() + " " if line[:-1].rstrip() != line[:-1] else line[:-1]
            continue
        yield first, held + line
        held = ""
    if held.strip():
        yield first, held
