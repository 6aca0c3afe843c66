"""The command of one table or of several: which one it is, the flags say."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tagstream.streaming.clock import clock_from_env
from tagstream.streaming.job.failure import exit_code
from tagstream.streaming.job.main import fail
from tagstream.streaming.job.main import main as one_table
from tagstream.streaming.job.session import take_store_settings
from tagstream.streaming.options.cli import PROGRAM
from tagstream.streaming.tables.run_tables import run_tables
from tagstream.streaming.tables.table_list import names_several, table_list
from tagstream.table.errors import ConfigError


def main(argv: Sequence[str], program: str = PROGRAM) -> int:
    """Run the job that the command line describes; exit code 0 done, 1 failed, 2 wrong use, 3 failed and will again."""
    if not names_several(argv) or {"--help", "-h"} & set(argv):
        return one_table(argv, program)
    try:
        tables = table_list(argv, program)
        for table in tables:
            take_store_settings(table.options, os.environ)
        run_tables(tables, os.environ, clock_from_env(os.environ))
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE") and not isinstance(e, ConfigError):
            raise
        return fail(str(e) or type(e).__name__, exit_code(e))
    return 0
