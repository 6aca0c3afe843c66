"""Load an index in a test and look at what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tagstream.bootstrap.report import BootstrapReport
from tagstream.bootstrap.run import bootstrap_index
from tagstream.state import codec
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.index_loads import starting_pointer
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.state.local_store import open_at
from tagstream.state.ordering import ordering_kind
from tagstream.state.store_entries import places_of
from tagstream.table.fields import ordering_type as type_of_ordering
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.posix import PosixStorage

LABELS = balanced_labels(3, 2)
NOW_MS = 1_767_225_600_000


class Entry(NamedTuple):
    """A key in the index; partition and file id None: a tombstone. `ordering` is the code, None where unknown."""

    partition: str | None
    file_id: str | None
    ordering: Any
    instant: int


def ordering_type(table: HoodieTable) -> pa.DataType | None:
    """Type of the table's ordering values."""
    avro = table.schema_json()
    return type_of_ordering(avro_to_arrow(avro), table.config.ordering_fields) if avro is not None else None


def make_layout(folder: Path, table: HoodieTable, *, global_index: bool = True) -> StateLayout:
    """A layout below a folder, for the table's ordering column."""
    return StateLayout(
        PosixStorage(str(folder / "durable"), sync=False),
        str(folder / "local"),
        ordering_kind(ordering_type(table)),
        global_index,
        snapshot_every=4,
        lock_wait_s=0.2,
    )


def load(table: HoodieTable, layout: StateLayout, index_load: int = 1, **options: Any) -> BootstrapReport:
    """Bootstrap in this process, at a clock that stands still."""
    options.setdefault("clock_ms", lambda: NOW_MS)
    return bootstrap_index(table, layout, LABELS, index_load, ordering_type=ordering_type(table), **options)


def content(layout: StateLayout, index_load: int = 1, pointer: Callable[[int], Any] | None = None) -> dict[str, Entry]:
    """State key (as text, without its first byte) -> entry, of all key groups as the generation left them."""
    found: dict[str, Entry] = {}
    for label in LABELS:
        at = starting_pointer(layout, index_load, label) if pointer is None else pointer(label)
        store, meta = open_at(layout, label, at)
        with store:
            entries = list(store.items())
            records = codec.decode([value for _, value in entries], layout.ordering)
            codes = np.unique(records.loc[(records.flags & TOMBSTONE) == 0])
            places = dict(zip(codes.tolist(), places_of(codes, store.get, label), strict=True))
        dead = (records.flags & TOMBSTONE) != 0
        assert (meta.live, meta.tombstones) == (np.count_nonzero(~dead), np.count_nonzero(dead))
        for i, (key, _) in enumerate(entries):
            place = (None, None) if dead[i] else places[int(records.loc[i])]
            known = not records.flags[i] & ORDERING_UNKNOWN
            name = key[1:].decode()
            assert name not in found
            found[name] = Entry(*place, records.ordering[i] if known else None, int(records.instant[i]))
    return found


def live(layout: StateLayout, index_load: int = 1) -> set[tuple[str, str | None, str | None]]:
    """(record key, partition path, file id) of the live keys of a global index."""
    return {(k, e.partition, e.file_id) for k, e in content(layout, index_load).items() if e.partition is not None}
