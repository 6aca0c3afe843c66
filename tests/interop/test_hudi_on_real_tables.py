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


# A table keeps its version; Hudi 0.15 reads no other than 6.
OLD = [name for name in CONTINUED if not {"v8", "v9"} & set(name.split("_"))]
CASES = [*((("0.15.0", 6), name) for name in OLD), *((("1.2.0", 9), name) for name in CONTINUED)]


@pytest.mark.parametrize(
    ("hudi", "name"), CASES, indirect=["hudi"], scope="session", ids=[f"{hudi[0]}-{name}" for hudi, name in CASES]
)
def test_an_update_a_move_and_an_insert_are_read(
    hudi: HudiSpark, continued: Callable[[str], Continued], name: str
) -> None:
    done = continued(name)
    done.check(hudi.read(done.table), f"Hudi {hudi.version}")
