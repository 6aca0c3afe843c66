"""The content of a commit file: write stats by partition, replaced file groups and extra metadata.

JSON up to table version 7, an Avro container file from 8 on; both are read and written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.avro_schemas import COMMIT_METADATA, REPLACE_COMMIT_METADATA, parsed_schema
from tagstream.table.timeline.avro_timeline import MAGIC, read_record, write_parsed
from tagstream.table.timeline.write_status import WriteStat, WriteStatus

SCHEMA_KEY = "schema"
_LAYOUT_2_MEMBERS = frozenset({"numUpdates", "prevBaseFile"})
AVRO_VERSION = 8  # from this table version on commits are Avro


@dataclass(frozen=True)
class CommitMetadata:
    """What one write action did. ``extra`` holds Hudi's ``extraMetadata`` (``schema``, checkpoints, our own keys)."""

    stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    operation: str = "UPSERT"
    compacted: bool = False
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def build(
        statuses: Iterable[WriteStatus],
        extra: Mapping[str, str],
        avro_json: str,
        operation: str = "UPSERT",
        replaced: Mapping[str, tuple[str, ...]] | None = None,
    ) -> CommitMetadata:
        """The metadata of a commit of these files; ``avro_json`` is the table schema without meta fields.

        ``replaced``: file ids by partition path that are no more from this commit on.
        """
        by_partition: dict[str, list[WriteStat]] = {}
        for status in statuses:
            by_partition.setdefault(status.stat.partition_path, []).append(status.stat)
        stats = {p: tuple(sorted(found, key=lambda s: s.path)) for p, found in sorted(by_partition.items())}
        return CommitMetadata(stats, {SCHEMA_KEY: avro_json, **extra}, operation, replaced=replaced or {})

    def all_stats(self) -> list[WriteStat]:
        """The stats of all partitions."""
        return [stat for found in self.stats.values() for stat in found]

    def to_bytes(self, version: int, *, replaces: bool = False) -> bytes:
        """The content of a commit file of this table version. ``replaces``: it is that of a replace commit, perhaps of one
        that replaces nothing."""
        replaces = replaces or bool(self.replaced)
        if version >= AVRO_VERSION:
            name = REPLACE_COMMIT_METADATA if replaces else COMMIT_METADATA
            content = {
                **self._content(WriteStat.to_json, replaces),
                "version": None,
            }  # Hudi leaves it out, against its own default
            return write_parsed(parsed_schema(name), content)
        return json.dumps(self._content(_layout_1_stat, replaces)).encode()

    def _content(self, as_json: Callable[[WriteStat], dict[str, Any]], replaces: bool) -> dict[str, Any]:
        content: dict[str, Any] = {
            "partitionToWriteStats": {p: [as_json(stat) for stat in found] for p, found in self.stats.items()},
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra),
            "operationType": self.operation,
        }
        if replaces:  # empty where nothing is replaced: without the map Hudi 1.x cannot read the commit, nor the table
            content["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in self.replaced.items()}
        return content

    @staticmethod
    def from_bytes(data: bytes, where: str) -> CommitMetadata:
        """Metadata of any writer; an empty file (some pending instants) gives empty metadata."""
        if not data.strip():
            return CommitMetadata(operation="UNKNOWN")
        if data.startswith(MAGIC):
            return _from_dict(read_record(data, where))
        try:
            content = json.loads(data)
        except ValueError as error:
            raise CorruptFileError(f"{where} is not readable commit metadata ({error}): restore the file") from error
        if not isinstance(content, dict):
            raise CorruptFileError(f"{where} holds no commit metadata: restore the file")
        return _from_dict(content)


def _layout_1_stat(stat: WriteStat) -> dict[str, Any]:
    """Without the members that came with Hudi 1.x: 0.x, whose tables these are, has no use for them."""
    return {name: value for name, value in stat.to_json().items() if name not in _LAYOUT_2_MEMBERS}


def _from_dict(content: Mapping[str, Any]) -> CommitMetadata:
    stats = content.get("partitionToWriteStats") or {}
    return CommitMetadata(
        stats={p: tuple(WriteStat.from_json(stat) for stat in found) for p, found in stats.items()},
        extra={k: v for k, v in (content.get("extraMetadata") or {}).items() if v is not None},
        operation=content.get("operationType") or "UNKNOWN",
        compacted=bool(content.get("compacted")),
        replaced={p: tuple(ids) for p, ids in (content.get("partitionToReplaceFileIds") or {}).items()},
    )
