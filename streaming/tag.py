"""The function given to ``applyInPandasWithState``: one call per key group and batch.

Everything a row still needs travels in the output: located rows for the writer, bad rows for the quarantine, and one
status row per key group that carries its delta's name and its counts to the driver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from state.layout import StateLayout
from state.tag_batch import TagBatch, TagResult
from state.tag_group import tag_key_group
from streaming.crash import CrashPlan
from streaming.decode.key_decoder import FLAG_BAD
from table.write_profile import WriteProfile

OP_STATUS = 3
OP_BAD = 4
OP_DELETE_NATURAL = 5  # a delete whose ordering value is not known

STATE_SCHEMA = "pointer binary"


def located_schema(ordering: str) -> str:
    """Spark schema of the tag step's output; ``ordering`` is the layout's kind."""
    kind = "binary" if ordering == "bytes" else "long"
    return f"dest_part string, dest_file string, op byte, skey binary, ord {kind}, value binary, note string"


@dataclass(frozen=True)
class TagSpec:
    """What every task needs to know; pickled into the plan once, when the query starts."""

    layout: StateLayout
    profiles_dir: str
    run: int
    crash: CrashPlan


def profile_path(profiles_dir: str, batch_id: int, run: int) -> str:
    """File of the write profile that one run pinned for one batch."""
    return os.path.join(profiles_dir, f"{batch_id:020d}.{run}.json")


def read_profile(path: str) -> WriteProfile:
    """The pinned profile; cached, since a worker serves several key groups of a batch and a profile never changes.

    A checkpoint that is made anew in the same folder begins with the same names: the file itself is part of the key.
    """
    stat = os.stat(path)
    return _read_profile(path, stat.st_ino, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_profile(path: str, _inode: int, _changed_ns: int) -> WriteProfile:
    with open(path, encoding="utf-8") as f:
        return WriteProfile.from_json(f.read(), path)


def make_tag_function(spec: TagSpec) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The stateful function of this query."""

    def tag(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        profile = read_profile(profile_path(spec.profiles_dir, batch_id, spec.run))
        parts = list(frames)
        rows = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
        flags = rows["flags"].to_numpy()
        bad = (flags & FLAG_BAD) != 0
        n_bad = int(bad.sum())
        good = rows[~bad] if n_bad else rows
        pointer = bytes(state.get[0]) if state.exists else None
        result = tag_key_group(int(key[0]), pointer, _batch(good, spec.layout), profile, spec.layout)
        if result.delta is not None:
            spec.crash.reach("delta_durable", batch_id)
        if result.pointer is not None and result.pointer != pointer:
            state.update((result.pointer,))
        yield _located(int(key[0]), result, good, rows[bad] if n_bad else None, spec.layout)

    return tag


def _batch(rows: pd.DataFrame, layout: StateLayout) -> TagBatch:
    return TagBatch(
        skeys=rows["skey"].to_numpy(),
        partitions=rows["part"].to_numpy(),
        ordering=None if layout.ordering == "none" else rows["ord"].to_numpy(),
        flags=rows["flags"].to_numpy().astype(np.uint8),
        source=rows["src"].to_numpy(),
        pos_hi=rows["pos_hi"].to_numpy(),
        pos_lo=rows["pos_lo"].to_numpy(),
    )


def _located(
    label: int, result: TagResult, good: pd.DataFrame, bad: pd.DataFrame | None, layout: StateLayout
) -> pd.DataFrame:
    text = layout.ordering == "bytes"
    n_bad = 0 if bad is None else len(bad)
    extra = n_bad + 1
    n = len(result)
    raw = good["value"].to_numpy()
    value = np.empty(n + extra, dtype=object)
    carries = result.take >= 0
    value[:n][carries] = raw[result.take[carries]]
    op = np.empty(n + extra, dtype=np.int8)
    op[:n] = np.where((result.op == 2) & ~result.has_ordering, OP_DELETE_NATURAL, result.op)
    ordering: Any = np.zeros(n + extra, dtype=object if text else np.int64)
    if text:
        ordering[:] = None
    ordering[:n] = np.where(result.has_ordering, result.ordering, None if text else 0)
    note = np.empty(n + extra, dtype=object)
    part = np.full(n + extra, "", dtype=object)
    file_id = np.full(n + extra, f"#{label}", dtype=object)
    skey = np.empty(n + extra, dtype=object)
    part[:n], file_id[:n], skey[:n] = result.partition, result.file_id, result.skey
    if bad is not None:
        value[n : n + n_bad] = bad["value"].to_numpy()
        op[n : n + n_bad] = OP_BAD
        skey[n : n + n_bad] = bad["skey"].to_numpy()  # the message key of a bad record
        notes = zip(bad["src"], bad["pos_hi"], bad["pos_lo"], bad["reason"], strict=True)
        # a row loop: bad records are few, and each carries its own text
        note[n : n + n_bad] = [json.dumps([s, int(h), int(lo), r]) for s, h, lo, r in notes]
    op[-1] = OP_STATUS
    note[-1] = json.dumps({"group": label, "delta": result.delta, "stats": result.stats})
    return pd.DataFrame(
        {
            "dest_part": part,
            "dest_file": file_id,
            "op": op,
            "skey": skey,
            "ord": ordering,
            "value": value,
            "note": note,
        },
        copy=False,
    )
