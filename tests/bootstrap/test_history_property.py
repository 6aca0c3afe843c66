"""Whatever a stream did to a table, the index loaded from it knows the rows, and the deletes that logs still hold."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.bootstrap.index_content import content, load, make_layout
from tests.table.writer import CrashError, Writer, row

UPSERTS = st.dictionaries(st.integers(0, 15), st.sampled_from(["p0", "p1", "p2"]), max_size=8)
# Share of the known keys to delete, and whether the delete says its ordering value.
DELETES = st.tuples(st.integers(1, 4), st.booleans())
STEPS = st.lists(
    st.tuples(UPSERTS, DELETES, st.sampled_from([None, None, None, None, "inflight", "files"])), min_size=1, max_size=6
)


@pytest.mark.extended("longer random histories")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([COPY_ON_WRITE, MERGE_ON_READ]), st.booleans())
@example([({}, (3, False), None)], MERGE_ON_READ, False)
@example([({0: "p1", 1: "p2"}, (4, False), None), ({2: "p0"}, (2, True), None)], MERGE_ON_READ, False)
@example(
    [({}, (1, False), None), ({0: "p1"}, (1, False), None), ({1: "p0", 15: "p1"}, (1, False), None)],
    MERGE_ON_READ,
    True,
)
def test_index_equals_the_oracle(steps: list[Any], table_type: str, inserts_to_base_files: bool) -> None:
    with TemporaryDirectory() as folder:
        writer = Writer.create(Path(folder), table_type).with_options(inserts_to_base_files=inserts_to_base_files)
        writer.write([row(i, f"p{i % 3}", 1) for i in range(12)])
        dead: dict[str, int] = {}
        for version, (upserts, (share, with_ordering), crash) in enumerate(steps, 2):
            rows = [row(key, part, version) for key, part in sorted(upserts.items())]
            gone = [key for key in sorted(writer.live)[:share] if key not in {r["id"] for r in rows}]
            orderings = dict.fromkeys(gone, version) if with_ordering else {}
            last = {key: writer.live[key]["ver"] for key in gone}
            try:
                writer.write(rows, gone, orderings, crash)
            except CrashError:
                writer.rollback_pending()
                continue
            dead = {k: v for k, v in dead.items() if k not in writer.live} | last | orderings
        table = writer.table.reload()
        layout = make_layout(Path(folder), table)
        report = load(table, layout)
        index = content(layout)
        live = {k: (e.partition, e.file_id, e.ordering) for k, e in index.items() if e.partition is not None}
        assert live == {k: (*place, writer.live[k]["ver"]) for k, place in writer.where.items()}
        tombstones = {k: e.ordering for k, e in index.items() if e.partition is None}
        assert (report.twice, report.mismatched, report.skipped, report.tombstones) == (0, [], [], len(tombstones))
        assert tombstones.keys() <= dead.keys()
        if inserts_to_base_files:  # a later delete may have gone into a base file, where it leaves no trace
            assert all(ordering <= dead[key] for key, ordering in tombstones.items())
        else:
            assert tombstones.items() <= dead.items()
        if table_type == MERGE_ON_READ and not inserts_to_base_files:
            assert tombstones == dead  # nothing was ever rewritten without its deletes
