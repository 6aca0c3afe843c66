"""BUCKET (simple engine): the file group of a key is a hash of it; nothing is looked up but which groups exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.table.errors import TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.base_file import open_base_file, range_of
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import bucket_of, new_file_id
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import WriteStatus


@dataclass(frozen=True)
class BucketPlaces:
    """Where the buckets of a table are: file ids by partition and bucket number. Sent to the tasks of one batch.

    ``seed`` goes into the ids of groups that are made new: the table and the instant, so a batch that runs again under
    its instant makes the same.
    """

    hashing: BucketHash
    known: Mapping[str, Mapping[int, str]]
    seed: tuple[str, ...]

    def locate(self, keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(file id, whether the group exists) of every key in its partition."""
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
    """``%08d`` of the bucket, then a name-based UUID from its ninth character on, then ``-0``, as Hudi on Spark does."""
    return f"{bucket:08d}{new_file_id(*seed, bucket)[8:]}"


@dataclass
class BucketIndex(HoodieIndex):
    """Every partition has ``hashing.num_buckets`` file groups at most, each holding one bucket."""

    hashing: BucketHash
    load: bool = True
    _known: dict[str, dict[int, str]] = field(default_factory=dict, init=False)

    name = "BUCKET"
    is_global = False
    can_index_log_files = True
    is_implicit_with_storage = True
    knows_absence = False

    def start(self, look: TableAsOf) -> None:
        """List the buckets that the table has. TableConfigMismatchError where two groups of a partition are one bucket,
        or where a file holds keys of another bucket than its own: both mean the table was written with other settings.

        ``load`` False (insert overwrite, which replaces what is there): nothing is read.
        """
        self._known = {}
        for file_slice in look.slices() if self.load else ():
            self._add(look, file_slice)

    def _add(self, look: TableAsOf, file_slice: FileSlice) -> None:
        table, partition, file_id = look.table, file_slice.partition_path, file_slice.file_id
        bucket = bucket_of(file_id)
        if bucket is None or bucket >= self.hashing.num_buckets:
            raise TableConfigMismatchError(
                f"file group {file_id} of partition {partition!r} in {table.base_path} is no bucket of 0 to "
                f"{self.hashing.num_buckets - 1}: the table has another index, or another "
                "hoodie.bucket.index.num.buckets; give the one it was written with"
            )
        buckets = self._known.setdefault(partition, {})
        if bucket in buckets:
            raise TableConfigMismatchError(
                f"bucket {bucket} of partition {partition!r} in {table.base_path} has two file groups, {buckets[bucket]} "
                f"and {file_id}: two writers made it at the same time; remove the newer one with Hudi (insert overwrite of "
                "the partition from a snapshot query) and start again"
            )
        if file_slice.base_path is not None and bucket not in buckets:
            self._check_keys(table.storage, file_slice.base_path, bucket)
        buckets[bucket] = file_id

    def _check_keys(self, storage: Storage, path: str, bucket: int) -> None:
        """The least and the greatest key of a base file must hash to its bucket."""
        with open_base_file(storage, path) as file:
            keys = [key for key in range_of(file.metadata) if key is not None]
        wrong = [k for k, b in zip(keys, self.hashing.buckets(pa.array(keys, pa.string())), strict=True) if b != bucket]
        if wrong:
            raise TableConfigMismatchError(
                f"{storage.where(path)} is bucket {bucket}, but its key {wrong[0]!r} belongs into bucket "
                f"{self.hashing.buckets(pa.array(wrong[:1]))[0]} of {self.hashing.num_buckets} by "
                f"{','.join(self.hashing.fields)}: give the hoodie.bucket.index.num.buckets and "
                "hoodie.bucket.index.hash.field the table was written with (and tagstream.bucket.index.key.release for "
                "keys with commas or colons)"
            )

    def places(self, look: TableAsOf, instant: str) -> BucketPlaces:
        """The buckets as a batch of ``instant`` finds them."""
        return BucketPlaces(self.hashing, self._known, (look.table.config.name, instant))

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The group of every key's bucket where it exists already; whether the key is in it is not known."""
        places = self.places(look, "")
        return records.mapInArrow(_make_locate(places, look.ordering.sql_type), location_schema(look.ordering.sql_type))

    def committed(self, statuses: Sequence[WriteStatus]) -> None:
        """Take over the groups that a commit has made; the next overwrite makes new ones in any case."""
        if not self.load:
            return
        for status in statuses:
            bucket = bucket_of(status.stat.file_id)
            if bucket is None:
                raise UnsupportedTableError(
                    f"a commit of a bucketed table made file group {status.stat.file_id}, which names no bucket"
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
