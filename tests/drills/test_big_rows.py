"""More than 2 GiB of one text column in one key group, one write task and one file group: for real, 6 GiB of memory."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tagstream.state.tag_batch import OP_INSERT, OP_UPDATE
from tagstream.streaming.batch.located import WriteTasks, by_write_task
from tagstream.streaming.source.packed import pack, unpack
from tagstream.table import chunks
from tagstream.table.file_group.names import list_partitions
from tests.streaming.batch.located_rows import located_rows, write_commit
from tests.table.writer import Writer

pytestmark = pytest.mark.drill
ROWS, DOC = 11_500, 200_000


def packed_rows(ver: int, op: int) -> Iterator[bytes]:
    """Packed located rows of one file group, a few at a time."""
    for first in range(0, ROWS, 500):
        rows = [
            {"id": f"k{n:06d}", "part": "p", "ver": ver, "name": f"{ver}:" + chr(97 + n % 26) * DOC, "amount": 0.5}
            for n in range(first, first + 500)
        ]
        yield from pack(located_rows([("file-0", op, row) for row in rows]))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_lane_of_more_than_an_array_holds(tmp_path: Path, table_type: str) -> None:
    before = (
        int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    )  # of the tests before this one
    writer = Writer.create(tmp_path, table_type)
    for ver, op in ((1, OP_INSERT), (2, OP_UPDATE)):
        rows = unpack(packed_rows(ver, op))
        assert rows.nbytes > 2**31 and rows["row"].num_chunks > 1
        with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
            rows.combine_chunks()
        rows = chunks.take(rows, np.arange(ROWS)[::-1])  # as the tag step does with a key group of this size
        again = [value for _, value in by_write_task(rows, WriteTasks(1))]
        del rows
        gc.collect()
        (status,) = write_commit(writer, unpack(again))
        assert (status.stat.num_inserts, status.stat.num_updates) == ((ROWS, 0) if ver == 1 else (0, ROWS))
        del again
        gc.collect()
    assert list_partitions(writer.table.storage) == ["p"]
    if table_type == "COPY_ON_WRITE":
        (base,) = (s.base_path for s in writer.table.view().latest_merged_slices("p"))
        assert base is not None
        names = pq.ParquetFile(str(tmp_path / "t" / base))
        lengths = [pc.binary_length(batch["name"]) for batch in names.iter_batches(500, columns=["name"])]
        assert pc.sum(pa.chunked_array(lengths)).as_py() == ROWS * (DOC + 2)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before / 2**30
    assert used < 8, f"{used:.1f} GiB"
