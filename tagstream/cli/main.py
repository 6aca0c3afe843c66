"""Entry point of ``tagstream``: runs the admin commands; all other arguments go to the stream.

Exit codes: 0 success; 1 an error, or the thing asked for was not found or is not right; 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tagstream.cli.output import JsonOutput, Output
from tagstream.cli.parser import GROUPS, OVERVIEW, command_of, parser
from tagstream.table.errors import ConfigError, TagstreamError


def main(argv: Sequence[str], stdout: TextIO | None = None) -> int:
    """Run the command line, without the program name, and return the exit code."""
    if argv and argv[0] in GROUPS:
        return _admin(argv, stdout or sys.stdout)
    if argv and argv[0] == "help":  # the same as `tagstream COMMAND --help`
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
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _admin(argv: Sequence[str], stdout: TextIO) -> int:
    try:
        arguments = parser(argv).parse_args(argv)
    except ConfigError as e:
        return _fail(str(e), 2)
    except SystemExit as e:  # --help
        return int(e.code or 0)
    out = open_output(stdout, json=arguments.json, vertical=arguments.vertical, width=arguments.width)
    try:
        code = command_of(arguments).run(arguments, out, _now_ms)
    except ConfigError as e:
        out.close(str(e))
        return _fail(str(e), 2)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        out.close("interrupted")  # this also shows the terminal's cursor again
        raise
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE"):
            raise
        # The text of an unexpected error says too little without its class.
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
    """JSON if requested, framed tables on a terminal, plain columns otherwise."""
    if json:
        return JsonOutput(stdout)
    from tagstream.cli.text_output import PlainOutput, TerminalOutput

    kind = TerminalOutput if stdout.isatty() else PlainOutput
    return kind(stdout, vertical=vertical, width=width)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(text: str, code: int) -> int:
    print(f"tagstream: error: {text}", file=sys.stderr)
    return code
