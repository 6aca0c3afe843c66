"""Which instants this checkpoint has begun for a batch, by the write profiles that its runs pinned."""

from __future__ import annotations

from tagstream.state.durable.root import PROFILES
from tagstream.streaming.tag.tag import profile_name
from tagstream.table.errors import TableError
from tagstream.table.storage.storage import Storage
from tagstream.table.write.write_profile import WriteProfile


def is_begun_here(root: Storage, query_id: str, batch_id: int, instant: str) -> bool:
    """Whether a run of the checkpoint of ``root`` has begun ``instant`` for this batch.

    A run pins a profile once Spark has planned the batch, and Spark never plans a batch twice in one checkpoint. So the
    instant then holds this very batch. A profile that cannot be read proves nothing.
    """
    profiles = root.below(PROFILES)
    of_batch = profile_name(batch_id, 0).partition(".")[0]
    return any(
        (pinned := _read(profiles, name)) is not None
        and pinned.mode == "process"  # a replay pins an instant that others may have begun
        and (pinned.query_id, pinned.batch_id, pinned.instant) == (query_id, batch_id, instant)
        for name in profiles.names("")
        if name.partition(".")[0] == of_batch
    )


def _read(profiles: Storage, name: str) -> WriteProfile | None:
    try:
        return WriteProfile.from_json(profiles.read(name).decode(), profiles.where(name))
    except (FileNotFoundError, TableError, UnicodeDecodeError):
        return None
