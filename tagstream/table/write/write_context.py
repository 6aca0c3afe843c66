"""The facts that the driver fixes before a batch runs, so that every attempt of a task writes the same file groups.

The write profile has the facts of the batch, the write context those of one write. The file group of a new record is a
pure function of the profile, so a recomputed task chooses the same one.
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

from tagstream.table.config import Kind
from tagstream.table.errors import TableError
from tagstream.table.file_group.base_file import DEFAULT_ROW_GROUP_BYTES
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.file_group.names import new_file_id
from tagstream.table.option_fields import option
from tagstream.table.schema.schema import avro_json, with_meta, with_meta_avro
from tagstream.table.storage.storage import Storage
from tagstream.table.stored_names import from_stored, to_stored
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.small_groups import SmallFile, SmallGroups

MIB = 1024 * 1024


@dataclass(frozen=True)
class WriterOptions:
    """How files are written. Defaults are Hudi's, but the job takes zstd. Sizes in bytes of Arrow data (rows in memory).

    ``inserts_to_base_files``: on merge-on-read, new records are written to base files, for tables that are shared with
    writers whose index cannot read log files (bloom, simple). ``groups_begin_with_base_files``: only those of a new
    file group are, for readers that do not see a group without a base file; later ones are written to its logs.
    ``compare_ordering``: the index cannot detect late rows, so a copy-on-write merge compares the ordering values of
    old and new rows and keeps the greater. ``range_columns``: columns whose least and greatest value is in each file's
    status. ``returns_bloom``: whether a base file's bloom filter is in its status. Both are for the metadata table.
    ``drops_columns``: columns of the previous file that the schema lacks are left out. ``keeps_duplicates``: rows are
    added to a base file without a comparison of keys, as by Hudi's concat handle.
    """

    codec: str = option(
        "hoodie.parquet.compression.codec",
        Kind.CHOICE,
        "Codec of Parquet pages, in base files and log blocks. Hudi's default is gzip, which takes two "
        "to four times as long to write. All engines can read zstd.",
        default="zstd",
        values={"GZIP": "gzip", "SNAPPY": "snappy", "ZSTD": "zstd", "UNCOMPRESSED": "uncompressed", "": "uncompressed"},
        refused_values=dict.fromkeys(
            ("LZO", "BROTLI", "LZ4", "LZ4_RAW"), "Hudi's readers do not all have it; use gzip, snappy or zstd"
        ),
        unread="gzip",
    )
    bloom: BloomParams = field(default_factory=BloomParams)
    row_group_bytes: int = option(
        "hoodie.parquet.block.size",
        Kind.BYTES,
        "Largest size of a row group in bytes.",
        default=DEFAULT_ROW_GROUP_BYTES,
        minimum=1024,
    )
    data_block_bytes: int = 256 * MIB
    inserts_to_base_files: bool = False
    groups_begin_with_base_files: bool = False
    compare_ordering: bool = False
    range_columns: frozenset[str] = frozenset()
    returns_bloom: bool = False
    drops_columns: bool = False
    keeps_duplicates: bool = False


@dataclass(frozen=True)
class WriteContext:
    """One write. ``schema`` and ``avro_json`` are the user columns; ``as_of`` is the newest completed instant that the
    driver read (None: the table is empty), ``timeline`` the timeline on which it is.

    ``task_partition`` and ``write_token`` distinguish the attempts of a task.
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
# Version 2 has all small files in the profile itself.
_READ_VERSIONS = (2, 3)

Mode = Literal["process", "replay"]


@dataclass(frozen=True)
class WriteProfile:
    """The immutable facts of one run of one batch.

    `labels` are the key groups' labels in the checkpoint's order. The position of a group there is its index, and its
    slot is that index modulo `slots`. Groups of one slot share the new file groups of a partition. `batch_time_ms` is
    the driver's clock when the profile was written (milliseconds since 1970); tasks never read a clock. `manifest`
    (replay only) maps a group label to the JSON of the delta of the commit on the timeline; groups without a delta are
    absent. `index_load` is the number of the index load, and `catch_up` that of the catch-up, that the index has. `chains`
    (process only) maps a group label to the beginning of the chain that the group's state must have. `chains_whole`: a
    group that is not in `chains` has no state of this index load yet; otherwise nothing is known of it. `small_groups`:
    the groups that take inserts; without it `small_files` has all of them, by partition path. `partition_depth`: number
    of folders in a partition path, None while no commit shows it. `write_tasks`: the write task of some file groups, by
    partition path and file id (these are not the slots above). `file_prefix`: 8 hexadecimal digits with which the ids of
    new file groups begin, so that streams that share a table do not fill each other's; empty for none.
    """

    table_name: str
    query_id: str
    batch_id: int
    run: int
    instant: str
    batch_time_ms: int
    labels: tuple[int, ...]
    mode: Mode = "process"
    index_load: int = 0
    catch_up: int = 0
    slots: int = 1
    records_per_new_file: int = 122_880
    small_files: dict[str, tuple[SmallFile, ...]] = field(default_factory=dict)
    small_groups: SmallGroups | None = None
    manifest: dict[int, str] = field(default_factory=dict)
    chains: dict[int, str] = field(default_factory=dict)
    chains_whole: bool = False
    partition_depth: int | None = None
    write_tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    file_prefix: str = ""

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"write profile mode {self.mode!r} is neither 'process' nor 'replay'")
        if self.slots < 1 or self.records_per_new_file < 1:
            raise ValueError(
                f"write profile of batch {self.batch_id}: slots ({self.slots}) and records_per_new_file "
                f"({self.records_per_new_file}) must be at least 1"
            )
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"write profile of batch {self.batch_id}: key group labels are empty or not unique")

    def group_index(self, label: int) -> int:
        """Position of a key group in the checkpoint's list of labels; ValueError for an unknown label."""
        try:
            return self.labels.index(label)
        except ValueError:
            raise ValueError(
                f"key group label {label} is not one of the {len(self.labels)} labels of the profile"
            ) from None

    def small_files_of(self, partitions: Collection[str]) -> dict[str, tuple[SmallFile, ...]]:
        """The file groups of partitions that still take inserts, in file id order; partitions without any may be missing."""
        if self.small_groups is not None:
            return self.small_groups.of(partitions)
        return {p: self.small_files[p] for p in partitions if p in self.small_files}

    def to_json(self) -> str:
        """One line of JSON; `from_json` makes an equal profile of it."""
        doc = to_stored({f.name: getattr(self, f.name) for f in fields(self)})
        doc["version"] = WRITE_PROFILE_VERSION
        if not self.file_prefix:
            del doc["file_prefix"]  # earlier versions do not know it
        doc["small_files"] = {p: [[s.file_id, s.free_records] for s in files] for p, files in self.small_files.items()}
        doc["small_groups"] = None if self.small_groups is None else self.small_groups.to_doc()
        for name in ("manifest", "chains"):
            doc[name] = {str(label): text for label, text in doc[name].items()}
        return json.dumps(doc, separators=(",", ":"), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, source: str = "write profile", storage: Storage | None = None) -> WriteProfile:
        """Parse the text of `to_json`; `source` names the file in errors. TableError for an unknown version or shape.

        `storage`: the profile's folder, needed by callers that read small files.
        """
        try:
            doc: dict[str, Any] = json.loads(text)
            version = doc.pop("version", None)
        except (ValueError, TypeError, AttributeError) as e:
            raise TableError(f"{source}: not a write profile ({e}); remove the checkpoint or restore this file") from e
        if version not in _READ_VERSIONS:
            raise TableError(
                f"{source}: write profile version {version!r}, this program supports {WRITE_PROFILE_VERSION}; "
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
            return cls(**from_stored(doc))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise TableError(f"{source}: write profile has a wrong shape ({e!r}); restore this file") from e


INT32 = npt.NDArray[np.int32]


def assign(
    partition_codes: INT32, partitions: Sequence[str], group_index: int, profile: WriteProfile
) -> tuple[INT32, list[tuple[str, str]]]:
    """The file group of every inserted record of one key group.

    `partition_codes` (indexes into `partitions`) are those of the inserts in record-key order. Returns a code for each
    record, and the list of (partition path, file id) that the codes index. In each partition the small files of the
    group's slot are filled first, each up to the group's share of its free space, then new file groups, which the
    slot's groups share.
    """
    out = np.zeros(len(partition_codes), np.int32)
    places: list[tuple[str, str]] = []
    taken: list[int] = []
    counts = np.bincount(partition_codes, minlength=len(partitions))
    # A loop over the partitions of the batch and the files that they fill, not over records. Plain numbers are faster
    # than arrays for the few records that a key group has in a partition.
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


def new_slot_file(partition: str, slot: int, n: int, profile: WriteProfile) -> str:
    """File id of the slot's n-th new file group in a partition in this run of the batch."""
    made = new_file_id(profile.table_name, profile.query_id, profile.batch_id, profile.run, partition, slot, n)
    return f"{profile.file_prefix}{made[len(profile.file_prefix) :]}"


def _new_file_share(group_index: int, profile: WriteProfile) -> int:
    """How many records one key group writes to each new file group of its slot."""
    groups = len(range(group_index % profile.slots, len(profile.labels), profile.slots))
    return max(1, -(-profile.records_per_new_file // groups))


def _rooms(
    partition: str, small: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, number of records from this key group) of the files that it fills: first small files, then new ones."""
    yield from _small_file_shares(small, group_index, profile)
    slot, share = group_index % profile.slots, _new_file_share(group_index, profile)
    for n in count():
        yield new_slot_file(partition, slot, n, profile), share


def _small_file_shares(
    files: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, number of records from this key group) of the small files that it may fill, in the profile's order.

    File j belongs to the slots that equal j modulo the smaller of the numbers of files and slots: every slot has a file
    if there is one. The free space of a file is divided among all key groups that may fill it.
    """
    if not files:
        return
    turn = min(len(files), profile.slots)
    block, slot = divmod(group_index, profile.slots)
    mine = slot % turn
    blocks, rest = divmod(len(profile.labels), profile.slots)
    a_block = len(range(mine, profile.slots, turn))  # slots of one block of key groups that may fill the same files
    size = blocks * a_block + len(range(mine, rest, turn))
    rank = block * a_block + slot // turn
    for i in range(mine, len(files), turn):
        room = files[i].free_records // size + (rank < files[i].free_records % size)
        if room > 0:
            yield files[i].file_id, room
