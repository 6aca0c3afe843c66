"""Tables of real Hudi that the stream has continued, read by real Hudi: the index was loaded right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from pyspark.sql import SparkSession

from tests.interop.hudi_spark import HudiSpark
from tests.streaming.real_tables import CONTINUED, Continued, continue_table

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]


@pytest.fixture(scope="session")
def continued(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Continued]:
    """A continued table by its name, streamed into once."""
    return cache(lambda name: continue_table(name, tmp_path_factory.mktemp(name), spark))


@pytest.mark.parametrize("name", CONTINUED)
def test_an_update_a_move_and_an_insert_are_read(
    hudi: HudiSpark, continued: Callable[[str], Continued], name: str
) -> None:
    done = continued(name)
    done.check(hudi.read(done.table), f"Hudi {hudi.version}")
