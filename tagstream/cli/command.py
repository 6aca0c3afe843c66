"""What a command of ``tagstream`` is: its name, its help line, its flags and its code.

Each file of commands has a tuple ``COMMANDS`` of them, and a line in the list of ``cli/parser.py``. Flags that several
commands have are here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tagstream.cli.output import Output

Clock = Callable[[], int]


@dataclass(frozen=True)
class Command:
    """One command. ``name``: empty where the group itself is the command, as in ``tagstream status``.

    ``text``: the help line. ``add_flags`` adds the command's own flags to a parser that has the flags of all commands.
    ``run`` gets the parsed flags, the output and the clock (milliseconds since 1970), and returns the exit code.
    """

    group: str
    name: str
    text: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output, Clock], int]


def count(text: str) -> int:
    """The value of a flag that is 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def size(text: str) -> int:
    """The value of a flag that is 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def add_checkpoint(out: argparse.ArgumentParser) -> None:
    """Add --checkpoint-dir."""
    out.add_argument("--checkpoint-dir", metavar="PATH", required=True, help="checkpoint of the stream")


def add_new_checkpoint(out: argparse.ArgumentParser) -> None:
    """Add --to-checkpoint-dir."""
    out.add_argument("--to-checkpoint-dir", metavar="PATH", required=True, help="the new checkpoint; must not exist")


def add_table(out: argparse.ArgumentParser) -> None:
    """Add --target-base-path."""
    out.add_argument("--target-base-path", metavar="PATH", required=True, help="folder of the table")


def add_limit(out: argparse.ArgumentParser, default: int, text: str) -> None:
    """Add --limit. ``text``: what is limited."""
    out.add_argument("--limit", metavar="N", type=count, default=default, help=f"{text} (default: {default})")


def add_lock_settings(out: argparse.ArgumentParser) -> None:
    """Add --props and --hoodie-conf, for commands that take the table's lock. ``props`` is a list."""
    out.add_argument(
        "--props",
        metavar="FILE",
        action="append",
        default=[],
        help="the stream's properties file, for the lock of Hudi's writers (hoodie.write.lock.*)",
    )
    out.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one of its properties; may be repeated"
    )


def add_record_settings(out: argparse.ArgumentParser) -> None:
    """Add --props and --hoodie-conf, for commands that read records as the stream does."""
    out.add_argument("--props", metavar="FILE", help="the stream's properties file")
    out.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one of its properties; may be repeated"
    )
