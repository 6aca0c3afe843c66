"""Entry of ``tagstream``: the admin commands here, everything else is the stream's.

Exit codes: 0 done, 1 an error, or what was looked for was not found or not right, 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tagstream.cli.output import JsonOutput, Output
from tagstream.cli.parser import GROUPS, OVERVIEW, parser
from tagstream.cli.services_parser import SERVICES
from tagstream.table.errors import ConfigError, TagstreamError


def main(argv: Sequence[str], stdout: TextIO | None = None) -> int:
    """Run the command line behind ``tagstream``."""
    if argv and argv[0] in GROUPS:
        return _admin(argv, stdout or sys.stdout)
    if argv and argv[0] == "help":  # as `tagstream COMMAND --help`
        argv = [*argv[1:], "--help"]
        if argv and argv[0] in GROUPS:
            return _admin(argv, stdout or sys.stdout)
    if not argv or argv[0] in ("-h", "--help"):
        print(OVERVIEW)
        return 0
    from tagstream.streaming.job.multi_table import main as stream

    try:
        return stream(argv[1:] if argv[0] == "stream" else argv, "tagstream stream")
    except SystemExit as e:  # --help
        return int(e.code or 0)


def console() -> int:
    """Entry point of the console script ``tagstream``."""
    try:
        return main(sys.argv[1:])
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _admin(argv: Sequence[str], stdout: TextIO) -> int:
    try:
        arguments = parser().parse_args(argv)
    except ConfigError as e:
        return _fail(str(e), 2)
    except SystemExit as e:  # --help
        return int(e.code or 0)
    out = open_output(stdout, json=arguments.json, vertical=arguments.vertical, width=arguments.width)
    try:
        code = _run(arguments, out)
    except ConfigError as e:
        out.close(str(e))
        return _fail(str(e), 2)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        out.close("interrupted")  # and the terminal's cursor is back
        raise
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE"):
            raise
        # What this project does not raise on purpose says too little without its kind.
        text = (
            str(e)
            if isinstance(e, TagstreamError | OSError)
            else f"{type(e).__name__}: {e} (TAGSTREAM_TRACE=1 shows where)"
        )
        out.close(text)
        return _fail(text, 1)
    out.close()
    return code


def open_output(stdout: TextIO, *, json: bool, vertical: bool, width: int) -> Output:
    """JSON when asked for, framed tables on a terminal, plain columns elsewhere."""
    if json:
        return JsonOutput(stdout)
    from tagstream.cli.text_output import PlainOutput, TerminalOutput

    kind = TerminalOutput if stdout.isatty() else PlainOutput
    return kind(stdout, vertical=vertical, width=width)


def _run(arguments: argparse.Namespace, out: Output) -> int:
    # Imported by group: looking at a table needs neither RocksDB nor the stream's modules.
    if arguments.group == "table":
        if arguments.command == "page":
            from tagstream.cli.table_page import run_page

            return run_page(arguments, out, _now_ms)
        if arguments.command in ("upgrade", "downgrade"):
            from tagstream.cli.upgrade import run_version

            return run_version(arguments, out, _now_ms)
        if arguments.command == "health":
            from tagstream.cli.table_health import run_health

            return run_health(arguments, out, _now_ms)
        if arguments.command in SERVICES:
            from tagstream.cli.table_services import run_services

            return run_services(arguments, out, _now_ms)
        from tagstream.cli.table import run_table

        return run_table(arguments, out)
    if arguments.group == "services":
        from tagstream.cli.services_run import run_process

        return run_process(arguments, out, _now_ms)
    if arguments.group == "quarantine":
        from tagstream.cli.quarantine import run_quarantine

        return run_quarantine(arguments, out)
    if arguments.group == "status":
        from tagstream.cli.status import run_status

        return run_status(arguments, out, _now_ms)
    if arguments.group == "rescale":
        from tagstream.cli.rescale import run_rescale

        return run_rescale(arguments, out, _now_ms)
    if arguments.group == "fetch-jars":
        from tagstream.cli.fetch_jars import run_fetch_jars

        return run_fetch_jars(arguments, out, os.environ)
    if arguments.command == "advise":
        from tagstream.cli.advise import run_advise

        return run_advise(arguments, out)
    from tagstream.cli.index import run_index

    return run_index(arguments, out, _now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(text: str, code: int) -> int:
    print(f"tagstream: error: {text}", file=sys.stderr)
    return code
