"""What the driver pins before a batch runs, so that every attempt of a task writes the same file groups.

The write profile has the facts of the batch, and the write context those of one write. The file group of a new
record is a pure function of the profile, so a task that is computed again chooses the same one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.errors import TableError
from tagstream.table.file_group.base_file import DEFAULT_ROW_GROUP_BYTES
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.file_group.names import new_file_id
from tagstream.table.schema.schema import avro_json, with_meta, with_meta_avro
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.small_groups import SmallFile, SmallGroups

MIB = 1024 * 1024


@dataclass(frozen=True)
class WriterOptions:
    """How files are written; the defaults are Hudi's. Sizes in bytes of Arrow data (rows in memory).

    ``inserts_to_base_files``: on merge-on-read, new records go to base files, for tables that are shared with writers
    whose index cannot see log files (bloom, simple). ``groups_begin_with_base_files``: those of a new file group alone,
    for readers that do not see a group without one; later ones go to its logs. ``compare_ordering``: the index could not
    tell late rows, so a copy-on-write merge compares the ordering values of old and new rows and keeps the greater.
    ``range_columns``: those whose least and greatest value each file's status tells, and ``tells_bloom``: it tells a base
    file's bloom filter, both for the metadata table. ``drops_columns``: columns of the file before that the schema lacks
    are left out.
    """

    codec: str = "gzip"
    bloom: BloomParams = field(default_factory=BloomParams)
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES
    data_block_bytes: int = 256 * MIB
    inserts_to_base_files: bool = False
    groups_begin_with_base_files: bool = False
    compare_ordering: bool = False
    range_columns: frozenset[str] = frozenset()
    tells_bloom: bool = False
    drops_columns: bool = False


@dataclass(frozen=True)
class WriteContext:
    """One write. ``schema`` and ``avro_json`` are the user columns; ``as_of`` is the newest completed instant the
    driver saw (None: the table is empty), ``timeline`` the timeline it saw it on.

    ``task_partition`` and ``write_token`` tell the attempts of a task apart.
    """

    instant: str
    action: str
    task_partition: int
    write_token: str
    schema: pa.Schema
    avro_json: str
    as_of: str | None
    timeline: Timeline
    options: WriterOptions = field(default_factory=WriterOptions)

    @property
    def file_schema(self) -> pa.Schema:
        """Columns of a data file: the meta columns, then the user columns as they are written."""
        return with_meta(self.schema)

    @property
    def file_avro_json(self) -> str:
        """The Avro schema of a data file, with the meta columns."""
        return avro_json(with_meta_avro(self.avro_json))


WRITE_PROFILE_VERSION = 3
# 2 had all small files in the profile itself, and none elsewhere.
_READ_VERSIONS = (2, 3)

Mode = Literal["process", "replay"]


@dataclass(frozen=True)
class WriteProfile:
    """The immutable facts of one run of one batch.

    `labels` are the key groups' labels in the checkpoint's order; a group's place in it is its index, and its lane is
    that index modulo `lanes`. Groups of one lane share the new file groups of a partition. `batch_time_ms` is the
    driver's clock when the profile was written (epoch milliseconds); nothing in a task reads a clock of its own.
    `manifest` (replay only) maps a group label to the JSON of the delta that the commit on the timeline was made with;
    a group that had none is absent. `generation` and `epoch` say which bootstrap and which catch-up the index is at.
    `chains` (process only) maps a group label to the beginning of the chain that the group's state must stand at;
    `chains_whole`: a group that it lacks has no state of this generation yet, else nothing is known of it.
    `small_groups`: the groups that take inserts; without it `small_files` holds all of them, by partition path.
    `partition_depth`: folders from the base path to a partition, None while no commit tells. `write_lanes`: which write
    task (another kind of lane than those above) some file groups go to, by partition path and file id.
    """

    table_name: str
    query_id: str
    batch_id: int
    run: int
    instant: str
    batch_time_ms: int
    labels: tuple[int, ...]
    mode: Mode = "process"
    generation: int = 0
    epoch: int = 0
    lanes: int = 1
    records_per_new_file: int = 122_880
    small_files: dict[str, tuple[SmallFile, ...]] = field(default_factory=dict)
    small_groups: SmallGroups | None = None
    manifest: dict[int, str] = field(default_factory=dict)
    chains: dict[int, str] = field(default_factory=dict)
    chains_whole: bool = False
    partition_depth: int | None = None
    write_lanes: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"write profile mode {self.mode!r} is neither 'process' nor 'replay'")
        if self.lanes < 1 or self.records_per_new_file < 1:
            raise ValueError(
                f"write profile of batch {self.batch_id}: lanes ({self.lanes}) and records_per_new_file "
                f"({self.records_per_new_file}) must be at least 1"
            )
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"write profile of batch {self.batch_id}: key group labels are empty or not unique")

    def group_index(self, label: int) -> int:
        """Place of a key group in the checkpoint's list of labels."""
        try:
            return self.labels.index(label)
        except ValueError:
            raise ValueError(
                f"key group label {label} is none of the {len(self.labels)} labels of the profile"
            ) from None

    def small_files_of(self, partitions: Collection[str]) -> dict[str, tuple[SmallFile, ...]]:
        """The file groups of partitions that still take inserts, in file id order; one without any may be missing."""
        if self.small_groups is not None:
            return self.small_groups.of(partitions)
        return {p: self.small_files[p] for p in partitions if p in self.small_files}

    def to_json(self) -> str:
        """One line of JSON; `from_json` gives an equal profile back."""
        doc: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        doc["version"] = WRITE_PROFILE_VERSION
        doc["small_files"] = {p: [[s.file_id, s.room_records] for s in files] for p, files in self.small_files.items()}
        doc["small_groups"] = None if self.small_groups is None else self.small_groups.to_doc()
        for name in ("manifest", "chains"):
            doc[name] = {str(label): text for label, text in doc[name].items()}
        return json.dumps(doc, separators=(",", ":"), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, source: str = "write profile", storage: Storage | None = None) -> WriteProfile:
        """Parse `to_json`'s text; `source` names the file in errors. An unknown version or shape is a TableError.

        `storage`: the profile's folder, for who will ask for small files.
        """
        try:
            doc: dict[str, Any] = json.loads(text)
            version = doc.pop("version", None)
        except (ValueError, TypeError, AttributeError) as e:
            raise TableError(f"{source}: not a write profile ({e}); remove the checkpoint or restore this file") from e
        if version not in _READ_VERSIONS:
            raise TableError(
                f"{source}: write profile version {version!r}, this program knows {WRITE_PROFILE_VERSION}; "
                "run the program version that wrote the checkpoint"
            )
        try:
            doc["labels"] = tuple(int(x) for x in doc["labels"])
            doc["small_files"] = {
                p: tuple(SmallFile(str(i), int(n)) for i, n in files) for p, files in doc["small_files"].items()
            }
            if (small := doc.get("small_groups")) is not None:
                doc["small_groups"] = SmallGroups.from_doc(small, storage)
            for name in ("manifest", "chains"):
                doc[name] = {int(label): str(text) for label, text in doc[name].items()}
            return cls(**doc)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise TableError(f"{source}: write profile has a wrong shape ({e!r}); restore this file") from e


INT32 = npt.NDArray[np.int32]


def assign(
    partition_codes: INT32, partitions: Sequence[str], group_index: int, profile: WriteProfile
) -> tuple[INT32, list[tuple[str, str]]]:
    """File group of every inserted record of one key group.

    `partition_codes` (into `partitions`) are the inserts in record-key order. Returns a code per record and the list
    of (partition path, file id) the codes stand for. In each partition the small files of the group's lane are filled
    first, each by the group's share of its room, then new file groups, which the lane's groups share.
    """
    out = np.zeros(len(partition_codes), np.int32)
    places: list[tuple[str, str]] = []
    taken: list[int] = []
    counts = np.bincount(partition_codes, minlength=len(partitions))
    # A loop over the partitions of the batch and the files they fill, not over records; in plain numbers, which for the few
    # records that a key group has of a partition are quicker than arrays.
    codes = np.flatnonzero(counts).tolist()
    small = profile.small_files_of([partitions[code] for code in codes])
    for code in codes:
        partition, left = partitions[code], int(counts[code])
        for file_id, room in _rooms(partition, small.get(partition, ()), group_index, profile):
            places.append((partition, file_id))
            taken.append(min(room, left))
            left -= taken[-1]
            if not left:
                break
    by_partition = np.argsort(partition_codes, kind="stable")
    out[by_partition] = np.repeat(np.arange(len(places), dtype=np.int32), taken)
    return out, places


def new_lane_file(partition: str, lane: int, n: int, profile: WriteProfile) -> str:
    """File id of the lane's n-th new file group in a partition in this run of the batch."""
    return new_file_id(profile.table_name, profile.query_id, profile.batch_id, profile.run, partition, lane, n)


def _new_file_share(group_index: int, profile: WriteProfile) -> int:
    """How many records one group puts into each new file group of its lane."""
    groups = len(range(group_index % profile.lanes, len(profile.labels), profile.lanes))
    return max(1, -(-profile.records_per_new_file // groups))


def _rooms(
    partition: str, small: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, room for this group) of the files the group fills, one after the other: small ones, then new ones."""
    yield from _small_file_shares(small, group_index, profile)
    lane, share = group_index % profile.lanes, _new_file_share(group_index, profile)
    for n in count():
        yield new_lane_file(partition, lane, n, profile), share


def _small_file_shares(
    files: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, room for this group) of the small files the group may fill, in the profile's order.

    File j belongs to the lanes that equal j modulo the number of files or of lanes, whichever is smaller: every lane
    has a file as long as there is one. A file's room is divided among all groups that may fill it.
    """
    if not files:
        return
    turn = min(len(files), profile.lanes)
    block, lane = divmod(group_index, profile.lanes)
    mine = lane % turn
    blocks, rest = divmod(len(profile.labels), profile.lanes)
    a_block = len(range(mine, profile.lanes, turn))  # lanes of one block of groups that may fill the same files
    size = blocks * a_block + len(range(mine, rest, turn))
    rank = block * a_block + lane // turn
    for i in range(mine, len(files), turn):
        room = files[i].room_records // size + (rank < files[i].room_records % size)
        if room > 0:
            yield files[i].file_id, room
