"""Schemas that tasks have noticed, on their way to the driver: a file of each task in the checkpoint.

A schema is too long for an error's text. So the task that has read records of a schema with something new writes it down,
when it has read all of its records, and then fails: the batch ends before anything is tagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import TaskContext

from tagstream.streaming.errors import SchemaChangedError
from tagstream.streaming.source.decode.events import Noticed
from tagstream.streaming.source.decode.schemas.watch import in_order, notes_from_json, notes_to_json
from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class SchemaNotes:
    """``folder``: where the notes are; ``start``: number of the query's start in this run, which no other one has."""

    folder: Storage
    start: str

    def leave(self, noticed: Sequence[Noticed]) -> None:
        """Write a task's notes down; SchemaChangedError, always."""
        create(self.folder, self._name(), notes_to_json(in_order(noticed)))
        raise SchemaChangedError(_words(noticed))

    def raise_again(self) -> None:
        """SchemaChangedError in a further attempt of a task that has left notes: they are all it was run for."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() and self.folder.exists(self._name()):
            raise SchemaChangedError(_words(notes_from_json(self.folder.read(self._name()))))

    def read(self) -> list[Noticed]:
        """All that was left at this start, older schemas first."""
        mine = [name for name in self.folder.names("") if name.startswith(f"{self.start}-")]
        return in_order([item for name in mine for item in notes_from_json(self.folder.read(name))])

    def _name(self) -> str:
        context = TaskContext.get()
        assert context is not None
        return f"{self.start}-{context.stageId()}-{context.partitionId()}.json"


def _words(noticed: Sequence[Noticed]) -> str:
    sources = ", ".join(dict.fromkeys(item.source for item in in_order(noticed)))
    return f"records have what the table's schema lacks ({sources}); their batch is done again with the schema changed"
