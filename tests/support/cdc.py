"""Captured change streams (fixtures/cdc.tar.xz) and the rows that the source's own SELECT gave."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain, zip_longest
from typing import Any

import pyarrow as pa

from tests.support.paths import FIXTURES

PHASES = (
    "snapshot", "stream", "truncate", "add_column", "add_default", "widen", "drop_column", "rename_column", "resnapshot",
)  # fmt: skip
Headers = Mapping[str, str]


@dataclass(frozen=True)
class Message:
    """One Kafka message of a capture."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def old_key(self) -> bytes | None:
        """The header that a changed key's new row has."""
        return self._header("__debezium.oldkey")

    @property
    def new_key(self) -> bytes | None:
        """The header that a changed key's delete has."""
        return self._header("__debezium.newkey")

    def _header(self, name: str) -> bytes | None:
        text = self.headers.get(name)
        return None if text is None else text.encode()


@cache
def _files() -> dict[str, bytes]:
    with tarfile.open(FIXTURES / "cdc.tar.xz") as archive:
        return {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]


def file(name: str) -> bytes:
    """A file of the captures."""
    return _files()[name]


def messages(folder: str, topic: str) -> list[Message]:
    """The messages of a topic, by partition and offset."""

    def raw(part: Any) -> bytes | None:
        if part is None:
            return None
        return base64.b64decode(part["base64"]) if isinstance(part, dict) else part.encode()

    found = [json.loads(line) for line in file(f"{folder}/{topic}.jsonl").splitlines()]
    return [
        Message(r["partition"], r["offset"], raw(r["key"]), raw(r["value"]), dict(r.get("headers") or ()))
        for r in found
    ]


def phases(folder: str, topic: str) -> list[tuple[str, list[Message]]]:
    """(name, messages) of each phase that the capture has."""
    done, out, all_of_it = [0, 0], [], messages(folder, topic)
    for phase in json.loads(file(f"{folder}/phases.json")):
        until = phase["offsets"].get(topic, done)
        out.append((phase["phase"], [m for m in all_of_it if done[m.partition] <= m.offset < until[m.partition]]))
        done = until
    return out


def truth(table: str, phase: str, names: Sequence[str] = PHASES, folder: str = "truth") -> list[dict[str, Any]]:
    """The rows at the end of a phase: a phase without a file left the table as it was. Numbers are exact."""
    for name in reversed(names[: list(names).index(phase) + 1]):
        text = _files().get(f"{folder}/{table}.{name}.jsonl")
        if text is not None:
            return [row_of_json(line.decode()) for line in text.splitlines()]
    return []


def row_of_json(line: str) -> dict[str, Any]:
    """A row as PostgreSQL's row_to_json gives it. Numbers are exact."""
    return json.loads(line, parse_float=Decimal, parse_int=_whole)  # type: ignore[no-any-return]


def schema_by_id(number: int) -> dict[str, Any]:
    """A schema of the registry."""
    return json.loads(json.loads(file("registry.json"))["schemas"][str(number)]["schema"])  # type: ignore[no-any-return]


def raw_batch(found: Sequence[Message]) -> pa.RecordBatch:
    """Messages as the source hands them to the decoder."""
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([m.key for m in found], pa.binary()),
            "value": pa.array([m.value for m in found], pa.binary()),
            "src": pa.nulls(len(found), pa.string()),
            "pos_hi": pa.array([m.partition for m in found], pa.int64()),
            "pos_lo": pa.array([m.offset for m in found], pa.int64()),
            "old_key": pa.array([m.old_key for m in found], pa.binary()),
            "new_key": pa.array([m.new_key for m in found], pa.binary()),
        }
    )


def in_turns(*streams: Sequence[Message]) -> list[Message]:
    """The messages of several tables as one topic has them; a tombstone stays behind its delete."""
    pairs: list[list[list[Message]]] = []
    for messages in streams:
        pairs.append([])
        for message in messages:
            if message.value is None and pairs[-1]:
                pairs[-1][-1].append(message)
            else:
                pairs[-1].append([message])
    return [m for combined in zip_longest(*pairs, fillvalue=()) for m in chain.from_iterable(combined)]


def differences(
    rows: Sequence[Mapping[str, Any]],
    expected: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    leave_out: Sequence[str] = (),
) -> list[str]:
    """What of a table's rows is not what SELECT gave, in words; columns that the table lacks are not looked at."""
    mine = {tuple(r[k] for k in keys): r for r in rows}
    out = [] if len(mine) == len(rows) else [f"{len(rows) - len(mine)} rows twice"]
    for want in expected:
        key = tuple(want[k] for k in keys)
        row = mine.pop(key, None)
        if row is None:
            out.append(f"{key} is missing")
            continue
        for column in want.keys() & row.keys() - set(leave_out):
            if not same(row[column], want[column]):
                out.append(f"{key}.{column}: {str(row[column])[:60]!r} for {str(want[column])[:60]!r}")
    return out + [f"{key} is too much" for key in mine]


def same(mine: Any, want: Any) -> bool:
    """Whether a column's value is what PostgreSQL's row_to_json says."""
    if mine is None or want is None:
        return mine is want
    if isinstance(want, dict) or (isinstance(want, list) and isinstance(mine, str)):
        return json.dumps(json.loads(mine), sort_keys=True) == json.dumps(_floats(want), sort_keys=True)
    if isinstance(want, list):
        return len(mine) == len(want) and all(same(a, b) for a, b in zip(mine, want, strict=True))
    if isinstance(mine, bool) or isinstance(want, bool):
        return mine is want
    if isinstance(mine, bytes):
        return bool("\\x" + mine.hex() == want)
    if isinstance(want, Decimal | int) and isinstance(mine, str):
        return Decimal(mine) == want
    if isinstance(mine, Decimal) and isinstance(want, str):
        return mine == Decimal(want)
    if isinstance(want, Decimal | int) and isinstance(mine, float):
        near = struct.unpack("f", struct.pack("f", float(want)))[0] if abs(float(want)) < 3.4e38 else None
        return mine in (float(want), near)
    if isinstance(mine, float) and isinstance(want, str):
        return math.isnan(mine) if want == "NaN" else mine == float(want)
    if isinstance(mine, datetime):
        return _zoned(mine) == _zoned(datetime.fromisoformat(want))
    if isinstance(mine, date):
        return bool(mine.isoformat() == want)
    if isinstance(mine, int) and isinstance(want, str) and re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?", want):
        mine = (datetime.min + timedelta(microseconds=mine)).time()  # a time of day in microseconds
    if isinstance(mine, time):
        return mine == time.fromisoformat(want)
    return bool(mine == want)


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _floats(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_floats(v) for v in value]
    return float(value) if isinstance(value, Decimal) else value


def _whole(text: str) -> int | Decimal:
    """Python reads no int of more than 4300 digits."""
    return int(text) if len(text) < 4000 else Decimal(text)
