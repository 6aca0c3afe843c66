"""Real Hudi reads and upserts into tables that a stream keeps on S3 and HDFS, and the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import chunks_of
from tests.interop.hudi_spark import HudiSpark
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.table_version import using

pytestmark = [pytest.mark.hudi_jar, pytest.mark.s3, pytest.mark.stores, pytest.mark.spark]
RELEASE = "1.2.0"
CHUNKS = chunks_of(list(ev.generate(320, ev.Mix(keys=90), seed=15)), 80)
LAST = 4_000_000_000_000  # a later time than any event's: what Hudi writes counts from then on
UPDATED, INSERTED = 7, 5
OPTIONS = {
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.embed.timeline.server": "false",
    "hoodie.index.type": "GLOBAL_SIMPLE",
    "hoodie.metadata.enable": "false",
}
MakeJob = Callable[[str], StoreJob]


@pytest.fixture(scope="module", params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture(scope="module")
def hudi_there(
    store: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HudiSpark]:
    """A running Hudi that reaches the store."""
    peers.set_up()
    settings: Mapping[str, str] = request.getfixturevalue(f"{store}_server").settings()
    jars = peers.s3a_jars() if store == "s3" else []
    with HudiSpark(RELEASE, tmp_path_factory.mktemp("hudi-there"), list(jars), settings) as running:
        yield running


@pytest.fixture
def make_job(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeJob:
    """A job on the store, of a table type."""

    def make(table_type: str) -> StoreJob:
        server, url = request.getfixturevalue(f"{store}_server"), request.getfixturevalue(f"{store}_folder")
        conf = {"hoodie.metadata.enable": "false", "tagstream.inserts.to.base.files": "true"}
        return StoreJob.at(server, url, tmp_path / "job", table_type, CHUNKS, conf=conf)

    return make


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_upserts_and_the_stream_goes_on(
    version: int, table_type: str, make_job: MakeJob, hudi_there: HudiSpark
) -> None:
    with using(version):
        job = make_job(table_type)
        first = 2 if table_type == "COPY_ON_WRITE" else 1  # Hudi's index does not see keys that are in logs alone
        job.write_input(0, first)
        job.finish()
        before = job.expected()
        check(before, hudi_there.read(job.table_url), "Hudi reads the stream's table")
        rows = by_hudi(before)
        with job.reached_by():
            hudi_there.write(HoodieTable.open(job.table_url), rows, OPTIONS)
        check(with_rows(before, rows), hudi_there.read(job.table_url), "Hudi reads what it has upserted")
        job.write_input(first, 4)
        job.finish()
        expected = with_rows(job.expected(), rows)
        assert job.committed() == len(CHUNKS)
        check(expected, hudi_there.read(job.table_url), "Hudi reads what the stream has added")
        check(expected, job.rows(), "hudi-rs reads it")


def by_hudi(rows: pa.Table) -> pa.Table:
    """Newer rows of some keys, in their places, and some new keys."""
    old = rows.slice(0, UPDATED)
    new = rows.slice(UPDATED, INSERTED)
    new = new.set_column(0, "id", pc.binary_join_element_wise("hudi-", new["id"], ""))
    both = pa.concat_tables([old, new])
    at = both.schema.get_field_index("ts")
    return both.set_column(at, both.schema.field("ts"), pa.repeat(pa.scalar(LAST, pa.int64()), both.num_rows))


def with_rows(expected: pa.Table, rows: pa.Table) -> pa.Table:
    """The expected rows, with Hudi's in their keys' places."""
    rest = expected.filter(pc.invert(pc.is_in(expected["id"], rows["id"].combine_chunks())))
    return pa.concat_tables([rest, rows.cast(rest.schema)])


def check(expected: pa.Table, found: pa.Table, what: str) -> None:
    wrong = compare(expected, found.select(expected.column_names), ["id"])
    assert not wrong, f"{what}: {wrong}"
