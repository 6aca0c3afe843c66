"""Cases on the shared HBase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.index.case import Case
from tests.support.hbase import HbaseServer


@pytest.fixture
def make_case(hbase_server: HbaseServer, spark: SparkSession, tmp_path: Path) -> Callable[..., Case]:
    """Makes the test's case; the arguments are those of ``Case.make`` from ``versions`` on."""
    return partial(Case.make, hbase_server, spark, tmp_path)
