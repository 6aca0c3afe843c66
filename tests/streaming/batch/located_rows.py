"""Located records as the tag step hands them to a write task, and the commit of what the task wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tagstream.state.ordering import encode_ordering
from tagstream.state.tag_batch import GLOBAL_KEY, OP_DELETE, OP_INSERT, OP_UPDATE
from tagstream.streaming.batch.located import located_schema, located_table
from tagstream.streaming.batch.write import WRITE_STATUS, WriteSpec, write_files
from tagstream.streaming.process import CrashPlan
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.write import commit
from tests.table.writer import SCHEMA, Row, Writer

ROW = pa.struct([f.with_nullable(True) for f in SCHEMA])
Work = tuple[str, int, Row]  # file id, op, row


def located_rows(work: Sequence[Work]) -> pa.Table:
    """Rows as a write task gets them, in this order."""
    gone = [op == OP_DELETE for _, op, _ in work]
    columns = {
        "dest_part": pa.array([row["part"] for *_, row in work]),
        "dest_file": pa.array([file_id for file_id, *_ in work]),
        "op": pa.array(np.array([op for _, op, _ in work], np.int8)),
        "skey": pa.array([GLOBAL_KEY + row["id"].encode() for *_, row in work], pa.binary()),
        "ord": pa.array(encode_ordering(pa.array([row["ver"] for *_, row in work], pa.int64()))),
        "row": pa.array([None if g else row for g, (*_, row) in zip(gone, work, strict=True)], ROW),
    }
    return located_table(located_schema("int64", ROW), len(work), columns)


def write_commit(writer: Writer, rows: pa.Table) -> list[WriteStatus]:
    """One commit of what one task writes of these rows."""
    table, instant = writer.table, writer.instant()
    avro = json.dumps(arrow_to_avro(SCHEMA, table.config.name))
    spec = WriteSpec(
        table=table,
        timeline=table.timeline(),
        instant=instant,
        action=writer.action,
        batch_id=0,
        run=1,
        avro_json=avro,
        options=writer.options,
        decode=DecodeSpec.of(table, avro, avro, global_index=True, files=False),
        quarantine=PosixStorage(str(Path(table.base_path).parent / "quarantine")),
        changed_keys=PosixStorage(str(Path(table.base_path).parent / "changed-keys")),
        topic="t",
        crash=CrashPlan(),
    )
    commit.request(table, instant, writer.action)
    commit.inflight(table, instant, writer.action)
    told = write_files(spec, rows, partition=0, attempt=1)
    statuses = [WriteStatus.from_json(text) for kind, text in told if kind == WRITE_STATUS]
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, writer.action, CommitMetadata.build(statuses, {}, avro))
    return statuses


def inserts_and_updates(groups: int, keys: int, ver: int, *, known: bool, name: str = "n") -> list[Work]:
    """A row of each key, group by group in turn; with ``known`` every fifth is a delete, the others are updates."""
    work = []
    for n in range(keys):
        row = {"id": f"k{n:06d}", "part": f"p{n % 2}", "ver": ver, "name": name, "amount": float(n)}
        op = OP_INSERT if not known else OP_DELETE if n % 5 == 0 else OP_UPDATE
        work.append((f"file-{n % groups}-0", op, row))
    return work
