"""BUCKET: a hash of the key gives its file group. The only lookup is which file groups exist.

``HoodieBucketIndex`` is what both engines have; ``BucketIndex`` is the simple engine, ``consistent_bucket`` has the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.table.buckets.partition_rules import BucketRules, rules_for
from tagstream.table.errors import ConfigError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.base_file import open_base_file, range_of
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import bucket_of, new_file_id
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.keys.hash_fields import HashFields
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import FileGroupId

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions


class Places(Protocol):
    """Where the keys of one batch belong. Sent to its tasks."""

    def locate(self, keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(file id, whether the file group exists) for every key in its partition."""


class HoodieBucketIndex(HoodieIndex):
    """A bucket index of either engine: the buckets of a partition share its keys, each has one file group."""

    name = "BUCKET"
    is_global = False
    can_index_log_files = True
    is_implicit_with_storage = True
    knows_absence = False

    @abstractmethod
    def places(self, look: TableAsOf, instant: str) -> Places:
        """The buckets, for a batch of ``instant``."""

    @abstractmethod
    def in_both(self, groups: frozenset[FileGroupId], others: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """Those of ``groups`` that another commit, which wrote to ``others``, has also written to."""

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The file group of every key's bucket, where it exists. Whether the key is in the group is not known."""
        places = self.places(look, "")
        return records.mapInArrow(_make_locate(places, look.ordering.sql_type), location_schema(look.ordering.sql_type))


def hash_fields(options: IndexOptions, record_key_fields: tuple[str, ...]) -> HashFields:
    """The hash fields by the user's options; ConfigError for fields that are not among the record key's."""
    try:
        return HashFields(record_key_fields, options.bucket_fields or record_key_fields, options.bucket_key_release)
    except ValueError as e:
        raise ConfigError(f"hoodie.bucket.index.hash.field: {e}") from None


@dataclass(frozen=True)
class BucketPlaces:
    """The file ids of a table's buckets, by partition and bucket number. Sent to the tasks of one batch.

    ``seed``: table name and instant, from which the ids of new file groups are made. A batch that runs again under its
    instant makes the same ids.
    """

    hashing: BucketHash
    rules: BucketRules
    known: Mapping[str, Mapping[int, str]]
    seed: tuple[str, ...]

    def locate(self, keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(file id, whether the file group exists) for every key in its partition."""
        encoded = partitions.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers, counts = encoded.indices.to_numpy().astype(np.int64), self.rules.counts(names)
        most = int(counts.max(initial=1))
        place = numbers * most + self.hashing.codes(keys) % counts[numbers] if len(keys) else numbers
        found, inverse = np.unique(place, return_inverse=True)
        file_ids, exists = [], np.zeros(len(found), np.bool_)
        # A step for each file group that the batch touches.
        for i, number in enumerate(found.tolist()):
            partition, bucket = names[number // most], number % most
            file_id = self.known.get(partition, {}).get(bucket)
            exists[i] = file_id is not None
            file_ids.append(file_id or new_bucket_file_id(bucket, *self.seed, partition))
        return pa.array(file_ids, pa.string()).take(pa.array(inverse)), exists[inverse]


def new_bucket_file_id(bucket: int, *seed: str) -> str:
    """The bucket as ``%08d``, then a name-based UUID from its ninth character on, then ``-0``, as in Hudi on Spark."""
    return f"{bucket:08d}{new_file_id(*seed, bucket)[8:]}"


@dataclass
class BucketIndex(HoodieBucketIndex):
    """The simple engine: bucket numbers are remainders of the hash. ``load`` False: see `start`.

    ``hashing.num_buckets``: of a partition without a rule. ``rules``: the numbers of the others.
    """

    hashing: BucketHash
    rules: BucketRules
    load: bool = True
    _known: dict[str, dict[int, str]] = field(default_factory=dict, init=False)

    java_classes = ("org.apache.hudi.index.bucket.HoodieSimpleBucketIndex",)

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> BucketIndex:
        """ConfigError for hash fields that are not among the record key's, and for rules that are not ones."""
        hashed = hash_fields(options, record_key_fields)
        buckets = options.num_buckets
        rules = BucketRules.parse(options.partition_expressions or "", buckets)
        return cls(
            BucketHash(buckets, record_key_fields, hashed.fields, hashed.release), rules, load=not options.overwrite
        )

    def start(self, look: TableAsOf) -> None:
        """List the buckets of the table. TableConfigMismatchError when two file groups of a partition have the same bucket,
        or a base file has keys of another bucket: both mean that the table was written with other settings.

        ``load`` False (insert overwrite, which replaces all existing data): only the table's rules are read.
        """
        self._known = {}
        self.rules = rules_for(look.table, look.timeline, self.rules)
        for file_slice in look.slices() if self.load else ():
            self._add(look, file_slice)

    def _add(self, look: TableAsOf, file_slice: FileSlice) -> None:
        table, partition, file_id = look.table, file_slice.partition_path, file_slice.file_id
        bucket, count = bucket_of(file_id), self.rules.buckets(partition)
        if bucket is None or bucket >= count:
            raise TableConfigMismatchError(
                f"file group {file_id} of partition {partition!r} in {table.base_path} is not one of the buckets 0 to "
                f"{count - 1}: the table has another index, or another number of buckets; set the "
                "hoodie.bucket.index.num.buckets (and hoodie.bucket.index.partition.expressions) it was written with"
            )
        buckets = self._known.setdefault(partition, {})
        if bucket in buckets:
            raise TableConfigMismatchError(
                f"bucket {bucket} of partition {partition!r} in {table.base_path} has two file groups, {buckets[bucket]} "
                f"and {file_id}: two writers made them at the same time; remove the newer one with Hudi (insert overwrite "
                "of the partition from a snapshot query) and start again"
            )
        if file_slice.base_path is not None and bucket not in buckets:
            self._check_keys(table.storage, file_slice.base_path, bucket, count)
        buckets[bucket] = file_id

    def _check_keys(self, storage: Storage, path: str, bucket: int, count: int) -> None:
        """TableConfigMismatchError unless the least and the greatest key of a base file hash to its bucket."""
        with open_base_file(storage, path) as file:
            keys = [key for key in range_of(file.metadata) if key is not None]
        found = (self.hashing.codes(pa.array(keys, pa.string())) % count).tolist()
        wrong = [(key, other) for key, other in zip(keys, found, strict=True) if other != bucket]
        if wrong:
            raise TableConfigMismatchError(
                f"{storage.where(path)} is bucket {bucket}, but its key {wrong[0][0]!r} belongs to bucket "
                f"{wrong[0][1]} of {count} by {','.join(self.hashing.fields)}; set the hoodie.bucket.index.num.buckets and "
                "hoodie.bucket.index.hash.field the table was written with (and tagstream.bucket.index.key.release for "
                "keys with commas or colons)"
            )

    def places(self, look: TableAsOf, instant: str) -> BucketPlaces:
        """The existing buckets, for a batch of ``instant``."""
        return BucketPlaces(self.hashing, self.rules, self._known, (look.table.config.name, instant))

    def in_both(self, groups: frozenset[FileGroupId], others: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """Two file groups of one bucket count: each writer has made its own."""
        buckets = {(partition, bucket_of(file_id)) for partition, file_id in others}
        return frozenset(group for group in groups if (group[0], bucket_of(group[1])) in buckets)

    def committed(self, statuses: Sequence[WriteStatus]) -> None:
        """Add the file groups that a commit has made. An insert overwrite makes new ones every time, so it adds none."""
        if not self.load:
            return
        for status in statuses:
            bucket = bucket_of(status.stat.file_id)
            if bucket is None:
                raise UnsupportedTableError(
                    f"a commit of a bucketed table made file group {status.stat.file_id}, which does not name a bucket"
                )
            self._known.setdefault(status.stat.partition_path, {})[bucket] = status.stat.file_id


def _make_locate(places: Places, sql_type: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def locate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, partitions = batch.column(0), batch.column(1)
            file_ids, exists = places.locate(keys, partitions)
            chosen = pa.array(exists)
            n = int(exists.sum())
            yield pa.RecordBatch.from_pydict(
                {
                    "record_key": keys.filter(chosen),
                    "partition_path": partitions.filter(chosen),
                    "file_id": file_ids.filter(chosen),
                    "instant": pa.repeat(pa.scalar(""), n),
                    "ord": pa.nulls(n, pa.binary() if sql_type == "binary" else pa.int64()),
                }
            )

    return locate
