"""The archive of timeline layout 1: log files ``.commits_.archive.<N>_1-0-1`` of Avro blocks, below ``.hoodie``.

A block's header has only the writer's schema. It has one record (HoodieArchivedMetaEntry) for each state file of
an action, in the order of the actions. The file with the greatest N has the newest records.

The member for a state's content depends on action and state. Hudi has two peculiarities: the content of a replace
commit's inflight file is in ``HoodieInflightReplaceMetadata`` (with a capital letter), and ``version`` is null.

After a crash between writing the file and removing from the active timeline, an action is in both. If another writer
archives it then, it is in the archive twice. So readers here return each action once. For the same reason files that
are being merged (``archive_merge``; ``mergeArchivePlan``, by Hudi 0.x) need no special handling.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import fastavro

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import I32, BlockType, HeaderKey, encode_block
from tagstream.table.history.action_files import ActionFile, ArchivedAction, commit_record, conformed, read_commit
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import avro_schema, read_record, write_record
from tagstream.table.timeline.instant import (
    CLEAN,
    COMMIT,
    COMPACTION,
    COMPLETED_ACTION,
    DELTA_COMMIT,
    INDEXING,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    State,
)

ENTRY = "HoodieArchivedMetaEntry"
# (member, record) of a completed action's content, of its plan, and of its inflight file.
_COMPLETED: dict[str, tuple[str, str]] = {
    COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    DELTA_COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    REPLACE_COMMIT: ("hoodieReplaceCommitMetadata", "HoodieReplaceCommitMetadata"),
    CLEAN: ("hoodieCleanMetadata", "HoodieCleanMetadata"),
    ROLLBACK: ("hoodieRollbackMetadata", "HoodieRollbackMetadata"),
    SAVEPOINT: ("hoodieSavePointMetadata", "HoodieSavepointMetadata"),
    INDEXING: ("hoodieIndexCommitMetadata", "HoodieIndexCommitMetadata"),
}
_PLAN: dict[str, tuple[str, str]] = {
    COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    LOG_COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    REPLACE_COMMIT: ("hoodieRequestedReplaceMetadata", "HoodieRequestedReplaceMetadata"),
    CLEAN: ("hoodieCleanerPlan", "HoodieCleanerPlan"),
}
_INFLIGHT: dict[str, tuple[str, str]] = {
    COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    DELTA_COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    REPLACE_COMMIT: ("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
    CLEAN: ("hoodieCleanerPlan", "HoodieCleanerPlan"),
}
_MEMBERS = {State.REQUESTED: _PLAN, State.INFLIGHT: _INFLIGHT, State.COMPLETED: _COMPLETED}
_PLANNED_AS: dict[str, str] = {COMMIT: COMPACTION, DELTA_COMMIT: LOG_COMPACTION}


def entries_of_files(files: Iterable[ActionFile], changed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The records of one action's files of layout 1; ``changed``: each file's modification time as an instant, by name."""
    return [_entry(file.instant, file.data, file.where, changed.get(file.name)) for file in files]


def entries_of(action: ArchivedAction, where: str) -> list[dict[str, Any]]:
    """The three records of an action, from its completed file and its plan."""
    planned = action.planned_by or (_PLANNED_AS.get(action.action) if action.plan else None) or action.action
    time, at = action.time, action.completion_time
    found = [_entry(Instant(time, planned, State.REQUESTED), action.plan or b"", where, time)]
    inflight = (action.plan or b"") if planned == CLEAN else b""
    found.append(_entry(Instant(time, planned, State.INFLIGHT), inflight, where, time))
    found.append(_entry(Instant(time, action.action, State.COMPLETED), action.metadata or b"", where, at))
    return found


def action_of(entries: Sequence[Mapping[str, Any]], where: str) -> ArchivedAction | None:
    """The action of these records; None when it was never completed."""
    completed = next((e for e in entries if state_of(e) is State.COMPLETED), None)
    if completed is None:
        return None
    planned = next((e for e in entries if state_of(e) is State.REQUESTED), None)
    time, action = _text(completed, "commitTime", where), _text(completed, "actionType", where)
    plan, planned_by = None, None
    if planned is not None:
        planned_by = _text(planned, "actionType", where)
        plan = _content(planned, _PLAN.get(planned_by), where)
    metadata = _content(completed, _COMPLETED.get(action), where)
    return ArchivedAction(time, action, completed.get("stateTransitionTime"), metadata, plan, planned_by)


def state_of(entry: Mapping[str, Any]) -> State:
    """A record's state. Records of Hudi's first versions have none and belong to completed actions."""
    state = (entry.get("actionState") or "COMPLETED").lower()
    return State(state) if state in list(State) else State.COMPLETED


def key_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """(time, action) of a record: a compaction and its commit are the same."""
    action = entry.get("actionType") or ""
    return entry.get("commitTime") or "", COMPLETED_ACTION.get(action, action)


def _entry(instant: Instant, data: bytes, where: str, changed: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "commitTime": instant.time,
        "actionType": instant.action,
        "actionState": instant.state.value.upper(),
        "stateTransitionTime": changed,
        "version": None,
    }
    member = _MEMBERS[instant.state].get(instant.action)
    if member is not None and data:
        name, record = member
        if record in ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata"):
            replace = record == "HoodieReplaceCommitMetadata"
            entry[name] = commit_record(read_commit(data, where), where, replace)
        else:
            entry[name] = read_record(data, where)
    try:
        return conformed(ENTRY, entry)
    except ValueError as error:
        raise CorruptFileError(
            f"{where} does not have the members that Hudi writes ({error}): restore the file"
        ) from error


def _content(entry: Mapping[str, Any], member: tuple[str, str] | None, where: str) -> bytes | None:
    """A member as a file of layout 2. Old writers have JSON text instead of a record."""
    if member is None or entry.get(member[0]) is None:
        return None
    name, record = member
    content = entry[name]
    if isinstance(content, str):
        content = read_commit(content.encode(), where)
    if record in ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata"):
        found = commit_record(content, where, record == "HoodieReplaceCommitMetadata")
    else:
        try:
            found = conformed(record, content)
        except ValueError as error:
            raise CorruptFileError(f"{where} does not have a valid {record} ({error}): restore the file") from error
    return write_record(avro_schema(record), found)


def _text(entry: Mapping[str, Any], member: str, where: str) -> str:
    value = entry.get(member)
    if not isinstance(value, str) or not value:
        raise CorruptFileError(f"{where} has a record without {member}: restore the file")
    return value


RECORDS_A_BLOCK = 10  # hoodie.commits.archival.batch
_NAME = re.compile(r"\.commits_\.archive\.(\d{1,9})(?:_.*)?")
_CONTENT = struct.Struct(">ii")
_CONTENT_VERSION = 3
# How often the archive is listed when files are removed while it is read.
_LISTINGS = 4
Entry = dict[str, Any]
T = TypeVar("T")


def is_archive_file(name: str) -> bool:
    """Whether this is the name of an archive file."""
    return _NAME.fullmatch(name) is not None


def archive_files(storage: Storage, folder: str, names: Iterable[str] | None = None) -> list[str]:
    """Names of the archive's files, oldest first; ``names``: those in the folder, if the caller has listed it."""
    there = storage.names(folder) if names is None else names
    matches = ((_NAME.fullmatch(name), name) for name in there)
    return [name for _, name in sorted((int(match.group(1)), name) for match, name in matches if match is not None)]


def read_entries(storage: Storage, rel: str) -> Iterator[Entry]:
    """The records of one file, in its writer's schema.

    A truncated block is skipped: its actions are still on the active timeline.
    """
    for block in scan_log_file(storage, rel):
        if block.type is BlockType.CORRUPT:
            continue
        if block.type is not BlockType.AVRO_DATA:
            raise UnsupportedTableError(f"{block.where} is not a block of archived instants; restore the file")
        yield from _decode(block)


def read_archive(storage: Storage, folder: str) -> Iterator[ArchivedAction]:
    """Every archived action once, file by file, within a file by time; without actions that were never completed."""
    seen: set[tuple[str, str]] = set()
    yield from listed_again(lambda: _read_unseen(storage, folder, seen))


def listed_again(read: Callable[[], Iterator[T]]) -> Iterator[T]:
    """The results of ``read``, which is called again from its start when a listed file was removed.

    A merge has then moved the file's records to an older one. Results may occur again.
    """
    for _ in range(_LISTINGS - 1):
        try:
            yield from read()
        except FileNotFoundError:
            continue
        return
    yield from read()


def _read_unseen(storage: Storage, folder: str, seen: set[tuple[str, str]]) -> Iterator[ArchivedAction]:
    # The end of a file may split an action's records.
    open_ones: dict[tuple[str, str], list[Entry]] = {}
    for name in archive_files(storage, folder):
        rel = f"{folder}/{name}"
        for entry in read_entries(storage, rel):
            open_ones.setdefault(key_of(entry), []).append(entry)
        for key in sorted(open_ones):
            action = action_of(open_ones[key], storage.where(rel))
            if action is None:
                continue
            del open_ones[key]
            if key not in seen:
                seen.add(key)
                yield action


def write_archive(storage: Storage, folder: str, actions: Iterable[Sequence[Entry]]) -> str | None:
    """Archive the records of actions as one new file, which appears whole; its name, or None without new actions."""
    ordered = sorted((entries for entries in actions if entries), key=lambda entries: key_of(entries[0]))
    there = archive_files(storage, folder) if ordered else []
    if ordered:
        known = _keys_since(storage, folder, there, key_of(ordered[0][0])[0])
        ordered = [entries for entries in ordered if key_of(entries[0]) not in known]
    if not ordered:
        return None
    number = 1 + max((int(_match(name).group(1)) for name in there), default=0)
    name = f".commits_.archive.{number}_1-0-1"
    entries = [entry for entries in ordered for entry in entries]
    blocks = [entries[at : at + RECORDS_A_BLOCK] for at in range(0, len(entries), RECORDS_A_BLOCK)]
    storage.write_new(f"{folder}/{name}", b"".join(_encode(block) for block in blocks))
    return name


def _keys_since(storage: Storage, folder: str, there: Sequence[str], first: str) -> set[tuple[str, str]]:
    """The actions in the newest files, back to a file that ends before ``first``."""
    known: set[tuple[str, str]] = set()
    for name in reversed(there):
        entries = list(read_entries(storage, f"{folder}/{name}"))
        found = {key_of(entry) for entry in entries}
        # If an interrupted write split an action's records, its completed record is missing.
        known |= {key_of(entry) for entry in entries if state_of(entry) is State.COMPLETED}
        if found and max(found)[0] < first:
            break
    return known


def _match(name: str) -> re.Match[str]:
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return match


def _decode(block: LogBlock) -> Iterator[Entry]:
    if block.avro_schema is None:
        raise CorruptFileError(f"{block.where} has no SCHEMA in its header; restore the file")
    content = block.content()
    try:
        schema = _parsed(block.avro_schema)
        version, count = _CONTENT.unpack_from(content, 0)
        if version != _CONTENT_VERSION:
            raise UnsupportedTableError(f"{block.where} has Avro content of version {version}; only 3 can be read")
        at = _CONTENT.size
        for _ in range(count):
            (length,) = I32.unpack_from(content, at)
            at += I32.size
            if length < 0 or at + length > len(content):
                raise ValueError(f"a record of {length} bytes")
            record = fastavro.schemaless_reader(io.BytesIO(content[at : at + length]), schema, None)
            if not isinstance(record, Mapping):
                raise ValueError("a value that is not a record")
            yield dict(record)
            at += length
    except (struct.error, EOFError, ValueError, IndexError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{block.where} has no readable archived instants ({error}); restore the file"
        ) from error


def _encode(entries: Sequence[Entry]) -> bytes:
    text = json.dumps(avro_schema(ENTRY))
    out = [_CONTENT.pack(_CONTENT_VERSION, len(entries))]
    for entry in entries:
        record = io.BytesIO()
        fastavro.schemaless_writer(record, _parsed(text), entry)
        out += [I32.pack(record.tell()), record.getvalue()]
    return encode_block(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: text}, b"".join(out))


@cache
def _parsed(avro_json: str) -> Any:
    return fastavro.parse_schema(json.loads(avro_json))
