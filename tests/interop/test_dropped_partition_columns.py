"""Tables without partition columns in their files: real Hudi reads ours, writes on in them, and our stream after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY
from tagstream.table.services.validate import validate
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.table_version import table_version

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
LATER = 100_000


@pytest.mark.parametrize("hive", ["true", "false"])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_hudi_reads_and_continues_our_table(
    hudi: HudiSpark, tmp_path: Path, spark: SparkSession, table_type: str, hive: str
) -> None:
    conf = {
        DROP_KEY: "true",
        "hoodie.datasource.write.hive_style_partitioning": hive,
        "tagstream.inserts.to.base.files": "true",  # Hudi's bloom index looks for keys in no log
    }
    case = StreamCase(tmp_path, spark, table_type, conf)
    if table_type == MOR and table_version() < 8:
        with pytest.raises(UnsupportedTableError, match="return nulls for the partition columns"):
            case.run()
        return
    sent = list(ev.generate(600, ev.Mix(keys=90, partitions=3), seed=23))
    ev.write_files(sent, case.source, 300)
    case.run()
    _check(hudi, case, sent)

    live = list(ev.oracle(sent).values())
    theirs = [replace(e, ordering=LATER + n, name="hudi") for n, e in enumerate(live) if n % 3 == 0]
    theirs += [ev.Event(f"h{n}", f"p{n % 4}", LATER + n, name="new") for n in range(9)]
    options = {**hudi.index("BLOOM"), DROP_KEY: "true"}
    hudi.write(HoodieTable.open(str(case.table)), ev.rows(theirs), options)
    sent += theirs
    _check(hudi, case, sent)

    ours = [replace(e, ordering=2 * LATER + n, name="ours", partition=f"p{n % 3}") for n, e in enumerate(theirs)]
    ours += [replace(e, ordering=2 * LATER + n, deleted=True) for n, e in enumerate(live) if n % 3 == 1]
    ours.append(ev.Event("odd", "a b", 2 * LATER, name="a blank"))
    sent += ours
    ev.write_files(ours, case.source, len(ours), first=10)
    case.run()
    _check(hudi, case, sent)


def test_our_stream_continues_a_table_of_hudi(hudi: HudiSpark, tmp_path: Path, spark: SparkSession) -> None:
    """Hudi makes the table, and clusters it, which leaves the columns in its files with nulls, where there is one."""
    place = tmp_path / "theirs"
    sent = [ev.Event(f"k{n}", f"p {n % 3}", 1 + n, name="hudi", amount=n / 4) for n in range(40)]
    options = {
        "hoodie.table.name": "events",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "2",
        "hoodie.clustering.plan.strategy.small.file.limit": "100000000",
        "hoodie.metadata.enable": str(table_version() >= 8).lower(),
        "hoodie.metadata.index.column.stats.enable": str(table_version() >= 8).lower(),
        DROP_KEY: "true",
    }
    if not hudi.is_0x:
        options |= {"hoodie.write.auto.upgrade": "false", "hoodie.write.table.version": str(table_version())}
    hudi.save(place, ev.rows(sent), options)
    more = [replace(e, ordering=100 + n, name="again") for n, e in enumerate(sent[:9])]
    hudi.save(place, ev.rows(more), options)
    sent += more
    case = StreamCase(tmp_path, spark, existing=place)
    _check(hudi, case, sent)

    ours = [replace(e, ordering=200 + n, name="ours", partition=f"p {n % 4}") for n, e in enumerate(sent[:20])]
    ours += [replace(e, ordering=200, deleted=True) for e in sent[30:36]]
    ours += [ev.Event(f"n{n}", None if n == 3 else "p 1", 200, name="new") for n in range(5)]
    sent += ours
    ev.write_files(ours, case.source, 16)
    case.run()
    _check(hudi, case, sent)


def _check(hudi: HudiSpark, case: StreamCase, sent: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(sent).values())
    assert not (wrong := compare(expected, tagstream.open_table(case.table).scan().to_arrow(), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []
    for listed in ("true", "false"):
        theirs = hudi.read(case.table, **{"hoodie.metadata.enable": listed})
        assert theirs.schema.field("part").type == pa.string()
        assert not (wrong := compare(expected, theirs, ["id"])), wrong
