"""``tagstream index get`` and ``stats``: a key of the index in a checkpoint, and its numbers by key group."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa

from tagstream.cli.command import Clock, Command, add_checkpoint
from tagstream.cli.index_reader import Entries, existing_checkpoint, open_index, state_keys
from tagstream.cli.output import Column, Fact, Output
from tagstream.state import codec
from tagstream.state.index_view import places_of_records
from tagstream.state.key_crc import state_key_groups
from tagstream.table.errors import ConfigError

_GROUPS = (
    Column("key_group", "key group", "count"),
    Column("label", "label", "count"),
    Column("keys", "keys", "count"),
    Column("tombstones", "tombstones", "count"),
    Column("snapshot_bytes", "snapshot", "bytes"),
    Column("delta_bytes", "deltas", "bytes"),
    Column("deltas", "of them", "count"),
    Column("epoch", "epoch", "count", json_only=True),
)


def _get(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    with open_index(existing_checkpoint(arguments.checkpoint_dir)) as index:
        layout = index.layout
        if layout.global_index and arguments.partition is not None:
            raise ConfigError(f"the index in {index.checkpoint} is global: a key is in one partition; omit --partition")
        if not layout.global_index and arguments.partition is None:
            raise ConfigError(
                f"the index in {index.checkpoint} is not global (index.global.enabled=false): it has a key per partition; "
                "name the partition with --partition"
            )
        skeys = state_keys(pa.array([arguments.key]), arguments.partition or "", layout)
        (group,) = state_key_groups(skeys, len(index.labels)).tolist()
        label = index.labels[group]
        with index.group(label) as store:
            found, records = codec.decode_some(store.get(skeys.to_pylist()), layout.ordering)
            known = bool(found[0])
            places, place = places_of_records(store, records, label) if known else ([], np.full(1, -1))
        entries = Entries(skeys, records, places, place)
    facts = [*index.facts(), Fact("key", "record key", arguments.key), Fact("found", "known", known)]
    facts += _location(entries, layout, arguments.partition) if known else []
    out.facts([*facts, Fact("key_group", "key group", group), Fact("label", "label", label, json_only=True)])
    return 0 if known else 1


def _location(entries: Entries, layout: Any, partition: str | None) -> list[Fact]:
    deleted = bool(entries.deleted[0])
    changed = dt.datetime.fromtimestamp(int(entries.records.minutes[0]) * 60, dt.UTC)
    return [
        Fact("deleted", "deleted", deleted),
        Fact("partition_path", "partition", partition if deleted else entries.partition_paths()[0].as_py()),
        Fact("file_id", "file id", entries.file_ids()[0].as_py()),
        Fact("set_at", "set at instant", entries.instants()[0].as_py()),
        Fact("ordering", "ordering value", _shown(entries.ordering(layout)[0].as_py())),
        Fact("changed", "changed", changed),
    ]


def _shown(ordering: Any) -> Any:
    """Bytes (the value of several ordering fields) as hex digits."""
    return ordering.hex() if isinstance(ordering, bytes) else ordering


def _stats(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    with open_index(existing_checkpoint(arguments.checkpoint_dir)) as index:
        heads, meta = index.heads, index.heads.meta
        out.facts(
            [
                *index.facts(),
                Fact("stream_id", "stream", meta.stream_id),
                Fact("table_name", "table", meta.table.name if meta.table else None),
                Fact("table_path", "at", meta.table.path if meta.table else None),
                Fact("global", "global", meta.global_index),
                Fact("ordering_kind", "ordering values", meta.ordering),
                Fact("key_groups", "key groups", meta.key_groups, "count"),
                Fact("shuffle_partitions", "shuffle partitions", meta.shuffle_partitions, "count"),
                Fact("generation", "generation", heads.index_load),
                Fact("epoch", "epoch", heads.catch_up),
            ]
        )
        rows = []
        for group, label in enumerate(index.labels):  # a row per key group, of which there are few
            counts, pointer = index.counts(label), heads.pointers[label]
            snapshot, deltas = index.sizes(label)
            rows.append(
                (group, label, counts.live, counts.tombstones, snapshot, deltas, len(pointer.deltas), pointer.catch_up)
            )
    out.listing("groups", _GROUPS, rows)
    live, dead, size = sum(r[2] for r in rows), sum(r[3] for r in rows), sum(r[4] + r[5] for r in rows)
    out.facts(
        [
            Fact("keys", "keys", live, "count"),
            Fact("tombstones", "tombstones", dead, "count"),
            Fact("bytes", "bytes", size, "bytes"),
            Fact("bytes_per_key", "bytes per key", round(size / (live + dead), 1) if live + dead else None),
        ]
    )
    return 0


def _add_get(out: argparse.ArgumentParser) -> None:
    out.add_argument("key", metavar="KEY", help="record key, as in the column _hoodie_record_key")
    add_checkpoint(out)
    out.add_argument("--partition", metavar="PATH", help="partition path; for an index with index.global.enabled=false")


COMMANDS = (
    Command("index", "get", "where a record key is; exit code 1 when the index does not have it", _add_get, _get),
    Command("index", "stats", "keys, tombstones and bytes of every key group", add_checkpoint, _stats),
)
