"""Records of version 6's archive (HoodieArchivedMetaEntry): one for each state file of an action.

Which member a state's content stands in depends on action and state. Two quirks of Hudi's: the content of a replace
commit's inflight file is in ``HoodieInflightReplaceMetadata`` (with a capital letter), and ``version`` is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.avro_schemas import avro_schema
from tagstream.table.timeline.avro_timeline import read_record, write_record
from tagstream.table.timeline.history.action_files import ActionFile
from tagstream.table.timeline.history.archived import ArchivedAction
from tagstream.table.timeline.history.commit_content import commit_record, read_commit
from tagstream.table.timeline.history.schemas import conformed
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
_COMPLETED = {
    COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    DELTA_COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    REPLACE_COMMIT: ("hoodieReplaceCommitMetadata", "HoodieReplaceCommitMetadata"),
    CLEAN: ("hoodieCleanMetadata", "HoodieCleanMetadata"),
    ROLLBACK: ("hoodieRollbackMetadata", "HoodieRollbackMetadata"),
    SAVEPOINT: ("hoodieSavePointMetadata", "HoodieSavepointMetadata"),
    INDEXING: ("hoodieIndexCommitMetadata", "HoodieIndexCommitMetadata"),
}
_PLAN = {
    COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    LOG_COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    REPLACE_COMMIT: ("hoodieRequestedReplaceMetadata", "HoodieRequestedReplaceMetadata"),
    CLEAN: ("hoodieCleanerPlan", "HoodieCleanerPlan"),
}
_INFLIGHT = {
    COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    DELTA_COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    REPLACE_COMMIT: ("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
    CLEAN: ("hoodieCleanerPlan", "HoodieCleanerPlan"),
}
_MEMBERS = {State.REQUESTED: _PLAN, State.INFLIGHT: _INFLIGHT, State.COMPLETED: _COMPLETED}
_PLANNED_AS = {COMMIT: COMPACTION, DELTA_COMMIT: LOG_COMPACTION}


def entries_of_files(files: Iterable[ActionFile], changed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The records of one action's files of layout 1; ``changed``: each file's modification time as an instant, by name."""
    return [_entry(file.instant, file.data, file.where, changed.get(file.name)) for file in files]


def entries_of(action: ArchivedAction, where: str) -> list[dict[str, Any]]:
    """The three records of an action of which only the completed file and the plan are kept."""
    planned = action.planned_by or (_PLANNED_AS.get(action.action) if action.plan else None) or action.action
    time, at = action.time, action.completion_time
    found = [_entry(Instant(time, planned, State.REQUESTED), action.plan or b"", where, time)]
    inflight = (action.plan or b"") if planned == CLEAN else b""
    found.append(_entry(Instant(time, planned, State.INFLIGHT), inflight, where, time))
    found.append(_entry(Instant(time, action.action, State.COMPLETED), action.metadata or b"", where, at))
    return found


def action_of(entries: Sequence[Mapping[str, Any]], where: str) -> ArchivedAction | None:
    """The action whose records these are; None when it was never completed."""
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
    """A record's state; records of the first versions have none and are of completed actions."""
    state = (entry.get("actionState") or "COMPLETED").lower()
    return State(state) if state in list(State) else State.COMPLETED


def key_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """The action a record belongs to: a compaction and its commit are one."""
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
        raise CorruptFileError(f"{where} does not hold what Hudi writes there ({error}): restore the file") from error


def _content(entry: Mapping[str, Any], member: tuple[str, str] | None, where: str) -> bytes | None:
    """A member as a file of layout 2; old writers have JSON text in place of a record."""
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
            raise CorruptFileError(f"{where} does not hold a {record} ({error}): restore the file") from error
    return write_record(avro_schema(record), found)


def _text(entry: Mapping[str, Any], member: str, where: str) -> str:
    value = entry.get(member)
    if not isinstance(value, str) or not value:
        raise CorruptFileError(f"{where} holds a record without {member}: restore the file")
    return value
