"""The command line: HoodieStreamer's flags, made from the key table, and its properties files.

A properties file has one ``key=value`` per line. ``#`` and ``!`` begin a comment. ``include=<file>`` includes
another file at that place, its path relative to the including file. A backslash is an ordinary character, as for
HoodieStreamer (a Windows path or a password keeps its backslashes). At the end of a line it continues the value on the next
line.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.options.registry import REGISTRY
from tagstream.table.config import FROM_CONF, FROM_FILE, FROM_FLAG, ConfigKey, Entry, Kind, Status
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
            # The line is not shown: it may be a part of a password.
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


PROGRAM = "run_stream.py"


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of printing the usage and exiting, so that all errors are reported in one way."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help")


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """The parser: every flag of the key table, with its default in the help; ``program``: its name."""
    out = _Parser(
        prog=program,
        allow_abbrev=False,
        description="Upserts a change stream (Kafka or JSON files) into an Apache Hudi table. "
        "Flags override --hoodie-conf, which overrides --props. Every key: docs/reference/configuration.md",
    )
    out.add_argument(
        "--props", metavar="FILE", action="append", default=[], help="properties file, as for HoodieStreamer"
    )
    out.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one property; may be repeated"
    )
    for key in REGISTRY.keys:
        if key.flag is not None:
            _add(out, key)
    return out


def _add(out: argparse.ArgumentParser, key: ConfigKey) -> None:
    assert key.flag is not None
    is_switch = key.kind is Kind.BOOL or "false" in key.harmless
    hidden = key.status is not Status.SUPPORTED
    out.add_argument(
        *key.flags,
        dest=key.flag,
        metavar=metavar(key),
        nargs="?" if is_switch else None,
        const="true" if is_switch else None,
        help=argparse.SUPPRESS if hidden else help_text(key).replace("%", "%%"),
    )


def metavar(key: ConfigKey) -> str:
    """The placeholder of a flag's value in the help."""
    if key.kind is Kind.CHOICE:
        return "|".join(key.choices)
    return {Kind.BOOL: "true|false", Kind.INT: "N", Kind.BYTES: "BYTES", Kind.PATH: "PATH"}.get(key.kind, "VALUE")


def help_text(key: ConfigKey) -> str:
    """A key's documentation for the help: meaning, default, property name."""
    text = key.doc.replace("`", "")
    note = key.default_note.replace("`", "") or ("none" if key.default in (None, ()) else str(key.default).lower())
    if key.kind is Kind.CHOICE and not key.default_note:
        note = str(key.default)
    property_name = "" if key.flag_only else f"; property {key.name}"
    return f"{text} (default: {note}{property_name})"


def load_options(argv: Sequence[str], program: str = PROGRAM) -> Options:
    """The options of a command line; ConfigError with one clear line when something is wrong.

    ``--help`` prints the help and raises SystemExit(0), as argparse does.
    """
    return build_options(command_line_entries(argv, program))


def command_line_entries(argv: Sequence[str], program: str = PROGRAM) -> list[Entry]:
    """The entries of a command line in rising precedence: properties file, ``--hoodie-conf``, flags."""
    out = parser(program)
    known, unknown = out.parse_known_args(list(argv))
    if unknown:
        flags = [flag for key in REGISTRY.keys for flag in key.flags] + ["--props", "--hoodie-conf"]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], flags, n=1)
        raise ConfigError(f"unknown argument {unknown[0]}{f'; did you mean {near[0]}?' if near else '; see --help'}")
    given = vars(known)
    entries = entries_of(given["props"], given["hoodie_conf"])
    for key in REGISTRY.keys:
        if key.flag is not None and given.get(key.flag) not in (None, ""):  # an unset variable of a script
            entries.append(Entry(key.name, str(given[key.flag]), key.flag, FROM_FLAG))
    return entries


def entries_of(files: Sequence[str], pairs: Sequence[str]) -> list[Entry]:
    """The entries of ``--props`` and ``--hoodie-conf``; ConfigError if a file cannot be read or a pair is invalid."""
    files = [path.removeprefix("file://") for path in files]
    if len(files) > 1:
        raise ConfigError(
            f"--props is given {len(files)} times ({', '.join(files)}): use one file; it may include others by include=FILE"
        )
    entries = [entry for path in files for entry in read_properties(Path(path), FROM_FILE)]
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--hoodie-conf {name}: expected key=value")
        entries.append(Entry(name.strip(), value.strip(), "--hoodie-conf", FROM_CONF))
    return entries
