"""One action's files in both layouts: names, contents, and what is the same in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.history.action_files import ActionFile, conformed, to_layout_1, to_layout_2
from tagstream.table.history.archive import archived_of
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.upgrade_layouts import place_of
from tagstream.table.timeline.avro_timeline import MAGIC, avro_schema, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import parse_instant
from tests.table.reference import unpack

T, C = "20260101000000000", "20260101000001000"
COMMIT = CommitMetadata(operation="INSERT_OVERWRITE", extra={"schema": "{}"}).to_bytes(6)


def plan(kind: str, cluster: bool = False) -> bytes:
    if kind == "HoodieRequestedReplaceMetadata":
        content = {"operationType": "CLUSTER" if cluster else None, "clusteringPlan": None}
    else:
        content = {"policy": "KEEP_LATEST_COMMITS", "earliestInstantToRetain": None, "partitionMetadata": {},
                   "startCleanTime": T, "timeTakenInMillis": 1, "totalFilesDeleted": 0, "earliestCommitToRetain": T,
                   "savepointedBy": "x", "savepointedAt": 1, "comments": ""}  # fmt: skip
    return write_record(avro_schema(kind), conformed(kind, content))


CLUSTERING = plan("HoodieRequestedReplaceMetadata", cluster=True)
OVERWRITE = plan("HoodieRequestedReplaceMetadata")
CLEAN, CLEANED, SAVEPOINT = plan("HoodieCleanerPlan"), plan("HoodieCleanMetadata"), plan("HoodieSavepointMetadata")
COMPACTION = plan("HoodieCompactionPlan")
ANY = b"Obj\x01 of any kind"  # what is not looked into

CASES = {
    "a commit": (
        {f"{T}.commit.requested": b"", f"{T}.inflight": COMMIT, f"{T}.commit": COMMIT},
        [f"{T}.commit.requested", f"{T}.inflight", f"{T}_{C}.commit"],
    ),
    "a delta commit that is empty while it is written": (
        {f"{T}.deltacommit.requested": b"", f"{T}.deltacommit.inflight": b"", f"{T}.deltacommit": COMMIT},
        [f"{T}.deltacommit.requested", f"{T}.deltacommit.inflight", f"{T}_{C}.deltacommit"],
    ),
    "a compaction": (
        {f"{T}.compaction.requested": COMPACTION, f"{T}.compaction.inflight": b"", f"{T}.commit": COMMIT},
        [f"{T}.compaction.requested", f"{T}.compaction.inflight", f"{T}_{C}.commit"],
    ),
    "a log compaction": (
        {f"{T}.logcompaction.requested": COMPACTION, f"{T}.logcompaction.inflight": b"", f"{T}.deltacommit": COMMIT},
        [f"{T}.logcompaction.requested", f"{T}.logcompaction.inflight", f"{T}_{C}.deltacommit"],
    ),
    "an insert overwrite": (
        {
            f"{T}.replacecommit.requested": OVERWRITE,
            f"{T}.replacecommit.inflight": COMMIT,
            f"{T}.replacecommit": COMMIT,
        },
        [f"{T}.replacecommit.requested", f"{T}.replacecommit.inflight", f"{T}_{C}.replacecommit"],
    ),
    "a clustering": (
        {f"{T}.replacecommit.requested": CLUSTERING, f"{T}.replacecommit.inflight": b"", f"{T}.replacecommit": COMMIT},
        [f"{T}.clustering.requested", f"{T}.clustering.inflight", f"{T}_{C}.replacecommit"],
    ),
    "a clustering that is planned": ({f"{T}.replacecommit.requested": CLUSTERING}, [f"{T}.clustering.requested"]),
    "a clean": (
        {f"{T}.clean.requested": CLEAN, f"{T}.clean.inflight": CLEAN, f"{T}.clean": CLEANED},
        [f"{T}.clean.requested", f"{T}.clean.inflight", f"{T}_{C}.clean"],
    ),
    "a savepoint": (
        {f"{T}.savepoint.inflight": b"", f"{T}.savepoint": SAVEPOINT},
        [f"{T}.savepoint.inflight", f"{T}_{C}.savepoint"],
    ),
    "a rollback": (
        {f"{T}.rollback.requested": ANY, f"{T}.rollback.inflight": b"", f"{T}.rollback": ANY},
        [f"{T}.rollback.requested", f"{T}.rollback.inflight", f"{T}_{C}.rollback"],
    ),
    "a restore": (
        {f"{T}.restore.requested": ANY, f"{T}.restore.inflight": b"", f"{T}.restore": ANY},
        [f"{T}.restore.requested", f"{T}.restore.inflight", f"{T}_{C}.restore"],
    ),
    "an index being built": (
        {f"{T}.indexing.requested": ANY, f"{T}.indexing.inflight": b""},
        [f"{T}.indexing.requested", f"{T}.indexing.inflight"],
    ),
}


def files(contents: dict[str, bytes]) -> list[ActionFile]:
    found = [(parse_instant(name), data, name) for name, data in contents.items()]
    return [ActionFile(instant, data, name) for instant, data, name in found if instant is not None]


@pytest.mark.parametrize("case", CASES)
def test_an_action_goes_up_and_down(case: str) -> None:
    contents, names = CASES[case]
    before = files(contents)
    up = to_layout_2(before, C)
    assert [file.name for file in up] == names
    down = to_layout_1(up)
    assert [file.name for file in down] == list(contents)
    for old, new, back in zip(before, up, down, strict=True):
        if old.data.startswith(b"{"):
            assert new.data.startswith(MAGIC)
            assert CommitMetadata.from_bytes(new.data, "") == CommitMetadata.from_bytes(old.data, "")
            assert CommitMetadata.from_bytes(back.data, "") == CommitMetadata.from_bytes(old.data, "")
        else:
            assert new.data == (b"" if old.name.endswith(".clean.inflight") else old.data)
            assert back.data == old.data
    again = to_layout_2(down, C)
    assert [(file.name, file.data) for file in again] == [(file.name, file.data) for file in up]
    assert [(f.name, f.data) for f in to_layout_2(up, C)] == [(f.name, f.data) for f in up]  # those of layout 2 stay


def test_the_archived_form_has_the_plan() -> None:
    for case, plans in (
        ("a compaction", COMPACTION),
        ("a clustering", CLUSTERING),
        ("a clean", CLEAN),
        ("a commit", None),
    ):
        action = archived_of(to_layout_2(files(CASES[case][0]), C))
        assert (action.plan, action.completion_time) == (plans, C), case
        assert action.action == {"a compaction": "commit", "a clustering": "replacecommit"}.get(case, case[2:])


def test_real_actions_of_every_kind(tmp_path: Path) -> None:
    """The unfinished files of a clustering are renamed, those of an insert overwrite are not."""
    place = place_of(HoodieTable.open(str(unpack("cow_v6_complexkey_replace", tmp_path))))
    renamed = set()
    for (time, _), found in place.names().items():
        loaded = place.load(found)
        up = to_layout_2(loaded, C)
        renamed |= {time for file in up if file.instant.action == "clustering"}
        assert [file.name for file in to_layout_1(up)] == [file.name for file in loaded]
    overwrites = {time for (time, action) in place.names() if action == "replacecommit"} - renamed
    assert (len(renamed), len(overwrites)) == (1, 1)


def test_a_file_that_is_broken_is_named() -> None:
    for broken in ({f"{T}.commit": b"{"}, {f"{T}.replacecommit.requested": b"Obj\x01"}):
        with pytest.raises(CorruptFileError, match=T):
            to_layout_2(files(broken), C)
    with pytest.raises(CorruptFileError, match=T):
        to_layout_1(files({f"{T}_{C}.commit": b"Obj\x01"}))
