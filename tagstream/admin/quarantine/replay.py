"""Bad records written once more to a folder that a job reads: each once, whatever dies in between.

What a replay is to do is kept before it is done, in ``<quarantine of root 0>/replayed/<n>.json``: the records' ids, the
folder, the file's name. The file then appears whole under that name, and ``<n>.done`` says so. A replay that was killed is
finished by the next one, which writes the file if it is not there. No record is chosen twice unless that is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tagstream.admin.errors import AdminError
from tagstream.admin.quarantine.records import BadRecord, bad_records, quarantine_of
from tagstream.table.storage.opening import open_storage, private
from tagstream.table.storage.storage import Storage

_VERSION = 1
_FOLDER = "replayed"


@dataclass(frozen=True)
class Replay:
    """One replay: ``file`` in ``folder`` has the records ``idents``."""

    number: int
    folder: str
    file: str
    idents: tuple[str, ...]

    @property
    def path(self) -> str:
        """Where the file is."""
        return open_storage(self.folder).where(self.file)


def replayed(checkpoint: Storage) -> dict[str, str]:
    """The records that were replayed, or are about to be: id -> the file."""
    return {ident: replay.path for replay in _replays(_ledger(checkpoint)) for ident in replay.idents}


def finish_replays(checkpoint: Storage) -> list[Replay]:
    """Do what killed replays have left undone; which these were."""
    ledger = _ledger(checkpoint)
    undone = [r for r in _replays(ledger) if not ledger.exists(f"{_FOLDER}/{r.number:06d}.done")]
    for replay in undone:
        _write(checkpoint, ledger, replay)
    return undone


def replay(checkpoint: Storage, folder: str, records: Collection[BadRecord]) -> Replay:
    """Write records that have a value to a new file of the folder. AdminError when another replay is at work."""
    ledger = _ledger(checkpoint)
    number = max((r.number for r in _replays(ledger)), default=0) + 1
    name = hashlib.sha256(checkpoint.root.encode()).hexdigest()[:8]
    made = Replay(
        number, open_storage(folder).root, f"quarantine-{name}-{number:06d}.json", tuple(r.ident for r in records)
    )
    doc = {"version": _VERSION, "folder": made.folder, "file": made.file, "records": made.idents}
    try:
        ledger.write_new(f"{_FOLDER}/{number:06d}.json", json.dumps(doc, indent=1).encode())
    except FileExistsError:
        raise AdminError("another replay of this checkpoint is at work; wait for its end, then do it again") from None
    _write(checkpoint, ledger, made)
    return made


def line_of(value: bytes) -> bytes:
    """A record as a line: a line's end inside it is a blank, which means the same in JSON outside of texts."""
    return value.replace(b"\n", b" ") + b"\n"


def _write(checkpoint: Storage, ledger: Storage, replay: Replay) -> None:
    target = private(open_storage(replay.folder))
    if not target.exists(replay.file):
        wanted = set(replay.idents)
        lines = {
            r.ident: line_of(r.value) for r in bad_records(checkpoint) if r.ident in wanted and r.value is not None
        }
        if len(lines) < len(wanted):
            raise AdminError(
                f"replay {replay.number} was cut off before {replay.path} was written, and {len(wanted) - len(lines)} of "
                "its records are not in the quarantine any more; bring the quarantine back from a copy, or remove "
                f"{ledger.where(_FOLDER)}/{replay.number:06d}.json to give them up"
            )
        with suppress(FileExistsError):
            target.write_new(replay.file, b"".join(lines[ident] for ident in replay.idents))
    with suppress(FileExistsError):
        ledger.write_new(f"{_FOLDER}/{replay.number:06d}.done", b"")


def _replays(ledger: Storage) -> Iterator[Replay]:
    for name in ledger.names(_FOLDER):
        number, _, kind = name.partition(".")
        if kind != "json":
            continue
        where = ledger.where(f"{_FOLDER}/{name}")
        try:
            doc = json.loads(ledger.read(f"{_FOLDER}/{name}"))
            if doc["version"] == _VERSION:
                yield Replay(int(number), doc["folder"], doc["file"], tuple(doc["records"]))
                continue
        except (ValueError, KeyError, TypeError) as e:
            raise AdminError(f"{where} is damaged ({e!r}); bring it back from a copy") from e
        raise AdminError(f"{where} has another version than {_VERSION}; run the program version that wrote it")


def _ledger(checkpoint: Storage) -> Storage:
    return quarantine_of(checkpoint, 0)
