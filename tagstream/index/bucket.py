"""BUCKET (simple engine): a hash of the key gives its file group. The only lookup is which file groups exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.table.errors import ConfigError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.base_file import open_base_file, range_of
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import bucket_of, new_file_id
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import WriteStatus

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions


@dataclass(frozen=True)
class BucketPlaces:
    """The file ids of a table's buckets, by partition and bucket number. Sent to the tasks of one batch.

    ``seed``: table name and instant, from which the ids of new file groups are made. A batch that runs again under its
    instant makes the same ids.
    """

    hashing: BucketHash
    known: Mapping[str, Mapping[int, str]]
    seed: tuple[str, ...]

    def locate(self, keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(file id, whether the file group exists) for every key in its partition."""
        buckets = self.hashing.buckets(keys)
        encoded = partitions.dictionary_encode()
        place = encoded.indices.to_numpy().astype(np.int64) * self.hashing.num_buckets + buckets
        found, inverse = np.unique(place, return_inverse=True)
        names = encoded.dictionary.to_pylist()
        file_ids, exists = [], np.zeros(len(found), np.bool_)
        # A step for each file group that the batch touches.
        for i, number in enumerate(found.tolist()):
            partition, bucket = names[number // self.hashing.num_buckets], number % self.hashing.num_buckets
            file_id = self.known.get(partition, {}).get(bucket)
            exists[i] = file_id is not None
            file_ids.append(file_id or new_bucket_file_id(bucket, *self.seed, partition))
        return pa.array(file_ids, pa.string()).take(pa.array(inverse)), exists[inverse]


def new_bucket_file_id(bucket: int, *seed: str) -> str:
    """The bucket as ``%08d``, then a name-based UUID from its ninth character on, then ``-0``, as in Hudi on Spark."""
    return f"{bucket:08d}{new_file_id(*seed, bucket)[8:]}"


@dataclass
class BucketIndex(HoodieIndex):
    """Every partition has at most ``hashing.num_buckets`` file groups, one per bucket. ``load`` False: see `start`."""

    hashing: BucketHash
    load: bool = True
    _known: dict[str, dict[int, str]] = field(default_factory=dict, init=False)

    name = "BUCKET"
    java_classes = ("org.apache.hudi.index.bucket.HoodieSimpleBucketIndex",)
    is_global = False
    can_index_log_files = True
    is_implicit_with_storage = True
    knows_absence = False

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> BucketIndex:
        """ConfigError for hash fields that are not among the record key's."""
        buckets = options.num_buckets if options.num_buckets is not None else 256
        fields = options.bucket_fields or record_key_fields
        try:
            hashing = BucketHash(buckets, record_key_fields, fields, options.bucket_key_release)
        except ValueError as e:
            raise ConfigError(f"hoodie.bucket.index.hash.field: {e}") from None
        return cls(hashing, load=not options.overwrite)

    def start(self, look: TableAsOf) -> None:
        """List the buckets of the table. TableConfigMismatchError when two file groups of a partition have the same bucket,
        or a base file has keys of another bucket: both mean that the table was written with other settings.

        ``load`` False (insert overwrite, which replaces all existing data): nothing is read.
        """
        self._known = {}
        for file_slice in look.slices() if self.load else ():
            self._add(look, file_slice)

    def _add(self, look: TableAsOf, file_slice: FileSlice) -> None:
        table, partition, file_id = look.table, file_slice.partition_path, file_slice.file_id
        bucket = bucket_of(file_id)
        if bucket is None or bucket >= self.hashing.num_buckets:
            raise TableConfigMismatchError(
                f"file group {file_id} of partition {partition!r} in {table.base_path} is not one of the buckets 0 to "
                f"{self.hashing.num_buckets - 1}: the table has another index, or another number of buckets; set the "
                "hoodie.bucket.index.num.buckets it was written with"
            )
        buckets = self._known.setdefault(partition, {})
        if bucket in buckets:
            raise TableConfigMismatchError(
                f"bucket {bucket} of partition {partition!r} in {table.base_path} has two file groups, {buckets[bucket]} "
                f"and {file_id}: two writers made them at the same time; remove the newer one with Hudi (insert overwrite "
                "of the partition from a snapshot query) and start again"
            )
        if file_slice.base_path is not None and bucket not in buckets:
            self._check_keys(table.storage, file_slice.base_path, bucket)
        buckets[bucket] = file_id

    def _check_keys(self, storage: Storage, path: str, bucket: int) -> None:
        """TableConfigMismatchError unless the least and the greatest key of a base file hash to its bucket."""
        with open_base_file(storage, path) as file:
            keys = [key for key in range_of(file.metadata) if key is not None]
        wrong = [k for k, b in zip(keys, self.hashing.buckets(pa.array(keys, pa.string())), strict=True) if b != bucket]
        if wrong:
            raise TableConfigMismatchError(
                f"{storage.where(path)} is bucket {bucket}, but its key {wrong[0]!r} belongs to bucket "
                f"{self.hashing.buckets(pa.array(wrong[:1]))[0]} of {self.hashing.num_buckets} by "
                f"{','.join(self.hashing.fields)}; set the hoodie.bucket.index.num.buckets and "
                "hoodie.bucket.index.hash.field the table was written with (and tagstream.bucket.index.key.release for "
                "keys with commas or colons)"
            )

    def places(self, look: TableAsOf, instant: str) -> BucketPlaces:
        """The existing buckets, for a batch of ``instant``."""
        return BucketPlaces(self.hashing, self._known, (look.table.config.name, instant))

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The file group of every key's bucket, where it exists. Whether the key is in the group is not known."""
        places = self.places(look, "")
        return records.mapInArrow(_make_locate(places, look.ordering.sql_type), location_schema(look.ordering.sql_type))

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


def _make_locate(places: BucketPlaces, sql_type: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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
