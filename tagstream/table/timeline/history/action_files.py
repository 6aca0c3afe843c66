"""The files of one action, brought from timeline layout 1 (table version 6) to layout 2 (versions 8 and 9) and back.

What differs between the layouts:

| file | layout 1 | layout 2 |
|---|---|---|
| completed, any action | ``T.action`` | ``T_C.action``, C being the completion time |
| commit, deltacommit, replacecommit: inflight and completed | JSON | Avro |
| an unfinished clustering | ``T.replacecommit.requested`` and ``.inflight`` | ``T.clustering.requested`` and ``.inflight`` |
| ``T.clean.inflight`` | the plan once more | empty |

All else is the same bytes under the same name: plans, cleans, rollbacks, restores, savepoints (Avro in both). Paths in
plans are absolute in both. The inflight file of a plain commit is ``T.inflight`` in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tagstream.table.timeline.history.commit_content import to_avro, to_json
from tagstream.table.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPLETED_ACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    Instant,
    State,
)
from tagstream.table.timeline.plans import read_plan

_COMMITS = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})


@dataclass(frozen=True)
class ActionFile:
    """One state's file of an action; ``where`` names it in messages."""

    instant: Instant
    data: bytes
    where: str

    @property
    def name(self) -> str:
        """Its name in the timeline folder."""
        return self.instant.file_name()


def to_layout_2(files: list[ActionFile], completion_time: str | None) -> list[ActionFile]:
    """The files of one action as layout 2 has them; ``completion_time`` of a completed one."""
    clusters = _clusters(files)
    return [_to_2(file, completion_time, clusters) for file in files]


def to_layout_1(files: list[ActionFile]) -> list[ActionFile]:
    """The files of one action as layout 1 has them."""
    plan = next((file.data for file in files if file.instant.state is State.REQUESTED), b"")
    return [_to_1(file, plan) for file in files]


def _to_2(file: ActionFile, completion_time: str | None, clusters: bool) -> ActionFile:
    instant, data = file.instant, file.data
    if instant.is_completed:
        action = COMPLETED_ACTION.get(instant.action, instant.action)
        if action in _COMMITS:
            data = to_avro(data, file.where, replace=action == REPLACE_COMMIT)
        return replace(file, instant=replace(instant, completion_time=completion_time), data=data)
    if clusters and instant.action == REPLACE_COMMIT:
        instant = replace(instant, action=CLUSTERING)
    if instant.state is State.INFLIGHT and instant.action == CLEAN:
        data = b""
    elif instant.state is State.INFLIGHT and instant.action in _COMMITS and data:
        data = to_avro(data, file.where)
    return replace(file, instant=instant, data=data)


def _to_1(file: ActionFile, plan: bytes) -> ActionFile:
    instant, data = file.instant, file.data
    if instant.is_completed:
        action = COMPLETED_ACTION.get(instant.action, instant.action)
        if action in _COMMITS:
            data = to_json(data, file.where, replace=action == REPLACE_COMMIT)
        return replace(file, instant=replace(instant, completion_time=None), data=data)
    if instant.action == CLUSTERING:
        instant = replace(instant, action=REPLACE_COMMIT)
    if instant.state is State.INFLIGHT and instant.action == CLEAN:
        data = plan
    elif instant.state is State.INFLIGHT and instant.action in _COMMITS and data:
        data = to_json(data, file.where)
    return replace(file, instant=instant, data=data)


def _clusters(files: list[ActionFile]) -> bool:
    """Whether a replace commit's plan is a clustering's: only then its unfinished files are renamed."""
    for file in files:
        if file.instant.action == REPLACE_COMMIT and file.instant.state is State.REQUESTED:
            return read_plan(file.data, REPLACE_COMMIT, file.where).is_clustering
    return False
