"""SIGKILL of jobs that read Protobuf messages: at the steps of a commit, and with restarts in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.drills.conftest import NewDrill
from tests.drills.kafka_job import KafkaJob
from tests.drills.steps import kill_at_each, points
from tests.support.events import Event, Mix, generate
from tests.support.kafka_broker import KafkaBroker

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
PER_BATCH = 80
FEW = ("state_committed", "files_published", "completed")
MIX = Mix(keys=300, tombstones=0.03)
NAME = "drill.Event"
_KINDS = descriptor_pb2.FieldDescriptorProto
FIELDS = {
    "id": _KINDS.TYPE_STRING, "part": _KINDS.TYPE_STRING, "ts": _KINDS.TYPE_INT64, "name": _KINDS.TYPE_STRING,
    "amount": _KINDS.TYPE_DOUBLE, "_hoodie_is_deleted": _KINDS.TYPE_BOOL,
}  # fmt: skip
OPTIONAL = ("part", "name", "amount")


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """The message of :class:`Event`, as ``protoc --descriptor_set_out`` writes it."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="drill.proto", package="drill", syntax="proto3")
    message = file.message_type.add(name="Event")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        field = message.field.add(name=name, number=number, type=kind, label=_KINDS.LABEL_OPTIONAL)
        if name in OPTIONAL:  # proto3's `optional`: a group of its own
            message.oneof_decl.add(name=f"_{name}")
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl) - 1
    return files


@dataclass
class ProtoJob(KafkaJob):
    """A :class:`KafkaJob` whose messages are Protobuf."""

    @cached_property
    def _message(self) -> Any:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptors().file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(NAME))

    def message_of(self, event: Event) -> tuple[bytes, bytes | None]:
        key = json.dumps({"id": event.key}).encode()
        if event.is_tombstone:
            return key, None
        given = {name: value for name, value in event.row().items() if value is not None}
        return key, self._message(**given).SerializeToString()

    def event_of(self, key: str, value: bytes | None) -> Event:
        if value is None:
            return Event(json.loads(key)["id"], None, None, deleted=True)
        found = self._message.FromString(value)
        part, name, amount = (getattr(found, field) if found.HasField(field) else None for field in OPTIONAL)
        return Event(found.id, part, found.ts, found._hoodie_is_deleted, name, amount)

    def expected(self) -> pa.Table:
        """Without the mark of deletes: a table whose schema is the message's has no column for it."""
        return super().expected().drop_columns(["_hoodie_is_deleted"])

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags, keys = super().source()
        file = self.folder / "drill.desc"
        file.write_bytes(descriptors().SerializeToString())
        own = {
            "hoodie.streamer.schemaprovider.proto.class.name": NAME,
            "tagstream.proto.descriptor.file": str(file),
        }
        return ["--source-class", "ProtoKafkaSource", *flags[2:]], keys | own

    def arguments(self, *more: str) -> list[str]:
        """Without a schema file: the schema is the message's."""
        out = super().arguments(*more)
        (at,) = (
            n for n, word in enumerate(out) if word.startswith("hoodie.streamer.schemaprovider.source.schema.file=")
        )
        return out[: at - 1] + out[at + 1 :]


def kill_at(
    steps: Sequence[str], table_type: str, folder: Path, broker: KafkaBroker, topic: str, new_drill: NewDrill
) -> None:
    with new_drill("SIGKILL at steps of a commit, Protobuf", table_type, len(steps)) as drill:
        job = ProtoJob(folder, table_type, broker, topic, PER_BATCH)
        events = generate((len(steps) + 2) * PER_BATCH, MIX, seed=17)
        # The name is not required: some messages do without it.
        job.produce(replace(e, name=None) if n % 7 == 0 and not e.is_tombstone else e for n, e in enumerate(events))
        kill_at_each(steps, drill, job)


@pytest.mark.extended("processes that are killed, a minute of starts")
@pytest.mark.kafka
def test_kills_at_three_steps_lose_and_double_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, new_drill: NewDrill
) -> None:
    kill_at(FEW, "MERGE_ON_READ", tmp_path / "job", kafka_broker, "proto-few", new_drill)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_a_kill_at_every_step_loses_and_doubles_nothing(
    table_type: str, tmp_path: Path, drill_broker: KafkaBroker, new_drill: NewDrill
) -> None:
    kill_at(points(), table_type, tmp_path / "job", drill_broker, f"proto-{table_type}", new_drill)
