"""Tables whose ordering field is inside a struct: real Hudi reads what our stream wrote, writes on, and both agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.interop.turns import INDEXED
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support import nested_orderings as nested
from tests.support import two_orderings as two
from tests.support.compare import compare

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
MOR, COW = "MERGE_ON_READ", "COPY_ON_WRITE"
PER_FILE = 150


@pytest.fixture(scope="module", params=["1.2.0", "0.15.0"])
def hudi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Real Hudi, running."""
    peers.set_up()
    with HudiSpark(request.param, tmp_path_factory.mktemp("hudi-nested")) as running:
        yield running


@pytest.mark.parametrize("table_type", [MOR, COW])
@pytest.mark.parametrize("kind", ["long", "text", "timestamp"])
def test_hudi_and_we_write_in_turn(
    hudi: HudiSpark, spark: SparkSession, tmp_path: Path, kind: str, table_type: str
) -> None:
    version, typed = 6 if hudi.is_0x else 9, two.KINDS[kind]
    conf = {**nested.conf(version), "tagstream.inserts.to.base.files": "false", **INDEXED}
    case = StreamCase(tmp_path, spark, table_type, conf, nested.avro_schema(typed))
    rows = nested.rows(ev.generate(3 * PER_FILE, ev.Mix(keys=50, late=0.2, late_deletes=0.1), seed=37), typed, version)
    ours = [rows[at : at + PER_FILE] for at in range(0, len(rows), PER_FILE)]
    sent: list[dict[str, Any]] = []
    for number in range(2):
        nested.write_rows(ours[number], case.source, number)
        sent += ours[number]
        case.run()
    check(case, hudi, sent, kind, "our stream")

    # Half of Hudi's events have the row's own values, and win; the others are far older, and Hudi must keep the row.
    theirs = []
    for n, row in enumerate(two.oracle(sent, typed).to_pylist()[::2]):
        of_key = [each for each in sent if each["id"] == row["id"] and not each["_hoodie_is_deleted"]]
        last = max(of_key, key=lambda each: (each["epoch"], each["step"]))
        theirs.append(
            {**last, "part": row["part"], "name": "by Hudi", **({"epoch": typed.pair(0)[0]} if n % 2 else {})}
        )
    arrow = nested.arrow([two.as_row(fields, typed) for fields in theirs], typed)
    hudi.write(
        HoodieTable.open(str(case.table)), arrow, {**INDEXED, **hudi.index("RECORD")}
    )  # an index that sees our logs
    sent += theirs
    check(case, hudi, sent, kind, "Hudi's write")

    alive = set(two.oracle(sent, typed)["id"].to_pylist())
    third = [fields for fields in ours[2] if fields["id"] in alive]
    nested.write_rows(third, case.source, 2)
    case.run()
    check(case, hudi, [*sent, *third], kind, "our stream again")


def check(case: StreamCase, hudi: HudiSpark, sent: list[dict[str, Any]], kind: str, who: str) -> None:
    """Rows by Hudi and by our reader; files and metadata table by ours."""
    expected = two.oracle(sent, two.KINDS[kind])
    table = HoodieTable.open(str(case.table))
    found: dict[str, pa.Table] = {"ours": read_snapshot(table), "Hudi": hudi.read(case.table)}
    for reader, rows in found.items():
        assert not (wrong := compare(expected, nested.flat(rows), ["id"])), f"after {who}, {reader}: {wrong}"
    assert validate(table) == [] and validate_metadata(table) == [], f"after {who}"
