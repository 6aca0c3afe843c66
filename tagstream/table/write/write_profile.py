"""What the driver pins before a batch runs, so that every attempt of the batch assigns the same file groups."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tagstream.table.errors import TableError
from tagstream.table.storage.storage import Storage
from tagstream.table.write.small_groups import SmallFile, SmallGroups

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
