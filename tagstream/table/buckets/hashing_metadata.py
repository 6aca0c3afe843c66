"""The ring of each partition of a table with consistent hashing, in ``.hoodie/.bucket_index``.

``consistent_hashing_metadata/<partition path>/<T>.hashing_meta`` is JSON of Hudi's HoodieConsistentHashingMetadata: the
nodes after the clustering ``T``, or the first ones (``00000000000000``). The file of ``T`` counts from the completion of
``T`` on. ``<T>.commit`` in the same folder says that too, and still does when ``T`` is archived. Whoever reads the
ring first after the completion makes this marker (``ConsistentBucketIndexUtils.loadMetadata`` of Hudi 1.2.0). Up to
version 7 no marker is made here: Hudi 0.15.0 makes its own in the partition, and where it finds one in its place, it cannot
resize the partition again. Without a marker the files of the new nodes tell.

A clustering writes its file before it completes, so the file of a clustering that is rolled back must be removed. Hudi
would find base files of its unchanged nodes, and take it for one that was completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tagstream.table.errors import CorruptFileError, ForeignCommitError, InstantConflictError
from tagstream.table.file_group.names import file_id_of, join
from tagstream.table.keys.consistent_hash import HASH_MASK, HashingNode, HashRing, NodeTag
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import META_FOLDER, Storage, each
from tagstream.table.timeline.timeline import Timeline

# The engines of the bucket index (``hoodie.index.bucket.engine``).
SIMPLE_ENGINE, CONSISTENT_HASHING = "SIMPLE", "CONSISTENT_HASHING"
BUCKET_INDEX: Final = f"{META_FOLDER}/.bucket_index"
HASHING_FOLDER: Final = f"{BUCKET_INDEX}/consistent_hashing_metadata"
FIRST_INSTANT: Final = "00000000000000"
_META, _COMMIT = ".hashing_meta", ".commit"
_NAME = re.compile(r"(\d{14,17})(\.hashing_meta|\.commit)")
_PREFIX = re.compile(r"[0-9A-Za-z-]{1,100}")
# How Jackson writes the characters of a text that JSON cannot have as they are.
_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(c): text for c, text in zip('\b\t\n\f\r"\\', ("\\b", "\\t", "\\n", "\\f", "\\r", '\\"', "\\\\"), strict=True)},
}  # fmt: skip


# What a plan changes: by partition path the number of resizes that it has seen, and the new nodes.
Children = Mapping[str, tuple[int, Sequence[HashingNode]]]


@dataclass(frozen=True)
class HashingMetadata:
    """One file. ``instant``: the clustering's. ``num_buckets``: of the first ring. ``seq_no``: the number of resizes."""

    partition_path: str
    instant: str
    num_buckets: int
    seq_no: int
    ring: HashRing

    @staticmethod
    def first(partition_path: str, num_buckets: int) -> HashingMetadata:
        """The metadata that a partition begins with."""
        return HashingMetadata(
            partition_path, FIRST_INSTANT, num_buckets, 0, HashRing.first(partition_path, num_buckets)
        )

    def resized(self, instant: str, children: Sequence[HashingNode]) -> HashingMetadata:
        """The metadata after the clustering ``instant``; ValueError for children that the ring cannot have."""
        ring = HashRing.of(self.ring.nodes, children)
        return HashingMetadata(self.partition_path, instant, self.num_buckets, self.seq_no + 1, ring)

    def to_bytes(self) -> bytes:
        """The file's content, byte for byte that of Hudi."""
        return (
            f'{{\n  "version" : 0,\n  "partitionPath" : {_text(self.partition_path)},\n  "instant" : "{self.instant}",\n'
            f'  "numBuckets" : {self.num_buckets},\n  "seqNo" : {self.seq_no},\n'
            f'  "nodes" : {_nodes_json(self.ring.nodes, "  ")}\n}}'
        ).encode()

    @property
    def path(self) -> str:
        """The file's path, relative to the table's base path."""
        return f"{hashing_folder(self.partition_path)}/{self.instant}{_META}"


def nodes_to_json(nodes: Iterable[HashingNode]) -> str:
    """The nodes as a clustering's plan has them (``ConsistentHashingNode.toJsonString``)."""
    return _nodes_json(nodes, "")


def nodes_from_json(text: str, where: str) -> tuple[HashingNode, ...]:
    """The nodes of a plan or of a file; CorruptFileError for what cannot be nodes. ``where``: the file, for the message."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return _nodes(found, where)


def hashing_folder(partition_path: str) -> str:
    """The folder of a partition's rings, relative to the table's base path."""
    return join(HASHING_FOLDER, partition_path) if partition_path else HASHING_FOLDER


def is_consistent(storage: Storage) -> bool:
    """Whether the table has the folder of consistent hashing."""
    return storage.exists(HASHING_FOLDER)


def load_rings(table: HoodieTable, timeline: Timeline, *, marks: bool) -> dict[str, HashingMetadata]:
    """The metadata that counts, by partition path.

    ``marks``: make the markers of completed clusterings that have none; the caller may write. CorruptFileError for a
    file that is not Hudi's.
    """
    names: dict[str, list[str]] = {}
    for path in table.storage.walk_files(HASHING_FOLDER):
        folder, _, name = path.rpartition("/")
        if _NAME.fullmatch(name):
            names.setdefault(folder[len(HASHING_FOLDER) + 1 :], []).append(name)
    partitions = sorted(names)
    found = each(lambda partition: _load(table, timeline, partition, names[partition], marks=marks), partitions)
    return {metadata.partition_path: metadata for metadata in found if metadata is not None}


def load_ring(table: HoodieTable, timeline: Timeline, partition: str, *, marks: bool) -> HashingMetadata | None:
    """The metadata of one partition that counts, None without any. Arguments and errors: as of :func:`load_rings`."""
    names = [name for name in table.storage.names(hashing_folder(partition)) if _NAME.fullmatch(name)]
    return _load(table, timeline, partition, names, marks=marks)


def _load(
    table: HoodieTable, timeline: Timeline, partition: str, names: Sequence[str], *, marks: bool
) -> HashingMetadata | None:
    instants = sorted(name.removesuffix(_META) for name in names if name.endswith(_META))
    marked = {name.removesuffix(_COMMIT) for name in names if name.endswith(_COMMIT)}
    for number in reversed(range(len(instants))):
        instant = instants[number]
        earlier = instants[number - 1] if number else None
        if instant not in marked and not _is_completed(table, timeline, partition, instant, earlier):
            continue
        if marks and instant != FIRST_INSTANT and instant not in marked:
            for each_instant in sorted({instant, FIRST_INSTANT} & set(instants) - marked):
                _mark(table, partition, each_instant)
        return _read(table, partition, instant)
    return None


def _is_completed(table: HoodieTable, timeline: Timeline, partition: str, instant: str, earlier: str | None) -> bool:
    """Whether the file of an instant without a marker counts."""
    if instant == FIRST_INSTANT or any(i.time == instant for i in timeline.completed_writes):
        return True
    if any(i.time == instant for i in timeline.instants) or not timeline.is_archived(instant):
        return False  # it is pending, or was rolled back
    # It is archived, or was rolled back by a writer that left its file. The files of its new nodes tell.
    before = {node.file_id for node in _read(table, partition, earlier).ring.nodes} if earlier is not None else set()
    new = {node.file_id for node in _read(table, partition, instant).ring.nodes} - before
    return any(file_id_of(name) in new for name in table.storage.names(partition))


def _mark(table: HoodieTable, partition: str, instant: str) -> None:
    if not table.config.has_completion_times:
        return
    try:
        table.storage.write_new(f"{hashing_folder(partition)}/{instant}{_COMMIT}", b"")
    except FileExistsError:
        return  # another writer has just done the same


def mark_completed(table: HoodieTable, instant: str, partitions: Iterable[str]) -> None:
    """Make the markers of a clustering that is completed, in the partitions that it resized."""
    for partition in sorted(partitions):
        _mark(table, partition, instant)


def begin_ring(table: HoodieTable, partition: str, num_buckets: int) -> None:
    """Write the first metadata of a partition; nothing changes where it is there.

    ForeignCommitError when another writer has just made a ring with another number of buckets.
    """
    wanted = HashingMetadata.first(partition, num_buckets)
    try:
        table.storage.write_new(wanted.path, wanted.to_bytes())
    except FileExistsError:
        found = _read(table, partition, FIRST_INSTANT)
        if found.ring != wanted.ring:
            raise ForeignCommitError(
                f"table {table.base_path}: another writer made the ring of partition {partition!r} with "
                f"{found.num_buckets} buckets ({table.storage.where(wanted.path)}) while a batch used {num_buckets}; the "
                "batch is processed again, into its buckets"
            ) from None


def ring_before(table: HoodieTable, timeline: Timeline, partition: str, seq_no: int) -> HashingMetadata:
    """The metadata of a partition that a plan was made for; InstantConflictError when there is a newer one, or none.

    ``seq_no``: the number of resizes that the plan has seen.
    """
    now = load_ring(table, timeline, partition, marks=True)
    if now is None or now.seq_no != seq_no:
        raise InstantConflictError(
            f"a clustering of {table.base_path} was planned after {seq_no} resizes of partition {partition!r}, which "
            f"{'has no ring' if now is None else f'has had {now.seq_no}'}: roll the plan back and plan again"
        )
    return now


def write_resized(table: HoodieTable, timeline: Timeline, instant: str, resized: Children) -> None:
    """Write the rings of a clustering before it completes; may be repeated. InstantConflictError: see
    :func:`ring_before`."""
    for partition, (seq_no, nodes) in sorted(resized.items()):
        metadata = ring_before(table, timeline, partition, seq_no).resized(instant, nodes)
        table.storage.replace(metadata.path, metadata.to_bytes())


def remove_rings(table: HoodieTable, instant: str) -> None:
    """Remove the rings and markers of a clustering that is rolled back, in all partitions; may be repeated."""
    if instant == FIRST_INSTANT or not is_consistent(table.storage):
        return
    names = (f"{instant}{_META}", f"{instant}{_COMMIT}")
    found = [path for path in table.storage.walk_files(HASHING_FOLDER) if path.rpartition("/")[2] in names]
    table.storage.delete_many(found)


def read_members(table: HoodieTable, rel: str, what: str) -> dict[str, Any]:
    """The members of a file of JSON. CorruptFileError for another content; ``what``: its name in the error."""
    try:
        found = json.loads(table.storage.read(rel))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CorruptFileError(f"{table.storage.where(rel)} is not JSON of {what}: restore the file")
    return found


def _read(table: HoodieTable, partition: str, instant: str) -> HashingMetadata:
    rel = f"{hashing_folder(partition)}/{instant}{_META}"
    where, found = table.storage.where(rel), read_members(table, rel, "a hashing metadata")
    if found.get("partitionPath") != partition or found.get("instant") != instant or found.get("version") != 0:
        raise CorruptFileError(
            f"{where} has version {found.get('version')!r}, partition {found.get('partitionPath')!r} and instant "
            f"{found.get('instant')!r}, which are not those of its place: restore the file"
        )
    numbers = (found.get("numBuckets"), found.get("seqNo"))
    nodes = _nodes(found.get("nodes"), where)
    if any(not isinstance(n, int) or n < 0 for n in numbers) or any(node.tag is not NodeTag.NORMAL for node in nodes):
        raise CorruptFileError(f"{where} has no usable number of buckets and resizes, or nodes of a plan: restore it")
    ring = HashRing.of(nodes)
    if len(ring.nodes) != len(nodes):
        raise CorruptFileError(f"{where} has two nodes of one value: restore the file")
    return HashingMetadata(partition, instant, found["numBuckets"], found["seqNo"], ring)


def _nodes(found: Any, where: str) -> tuple[HashingNode, ...]:
    if not isinstance(found, list) or not found:
        raise CorruptFileError(f"{where} has no nodes of consistent hashing: restore the file")
    return tuple(_node(each_node, where) for each_node in found)


def _node(found: Any, where: str) -> HashingNode:
    parts: list[Any] = [found.get(name) if isinstance(found, dict) else None for name in _NODE]
    value, prefix, tag = parts
    deleted = tag == NodeTag.DELETE
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= HASH_MASK and tag in list(NodeTag)
    # The prefix becomes a part of file names.
    if not good or (not deleted and not (isinstance(prefix, str) and _PREFIX.fullmatch(prefix))):
        raise CorruptFileError(f"{where} has {found!r}, which is not a node of consistent hashing: restore the file")
    return HashingNode(int(value), None if deleted else prefix, NodeTag(tag))


_NODE = ("value", "fileIdPrefix", "tag")


def _nodes_json(nodes: Iterable[HashingNode], indent: str) -> str:
    """A list of objects as Jackson's pretty printer writes it."""
    parts = (
        f'{{\n{indent}  "value" : {node.value},\n{indent}  "fileIdPrefix" : {_text(node.file_id_prefix)},\n'
        f'{indent}  "tag" : "{node.tag}"\n{indent}}}'
        for node in nodes
    )
    return f"[ {', '.join(parts)} ]"


def _text(value: str | None) -> str:
    return "null" if value is None else f'"{value.translate(_ESCAPES)}"'
