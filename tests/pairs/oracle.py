"""The rows that a case must have, from its events alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.pairs.events import Event, Row, row
from tests.pairs.options import BY_PARTITION, ENVELOPES, ROWS_STAY, STATES

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {*"\"#%'*/:=?\\{[]^", *map(chr, range(1, 32)), "\x7f"}
Ident = tuple[str, str]


@dataclass(frozen=True)
class Placed:
    """A row and where it lies; ``order``: what decides against other events of it."""

    path: str
    order: tuple[int, ...]
    row: Row
    deleted: bool = False


@dataclass
class Oracle:
    """The live rows after each batch. A key alone names a row, or partition path and key together."""

    case: Mapping[str, str]
    live: dict[Any, Placed] = field(default_factory=dict)
    buried: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    arrived: int = 0

    def batch(self, events: Iterable[Event]) -> None:
        """The newest event of each row in the batch, against the row."""
        newest: dict[Any, Placed] = {}
        for event in events:
            placed = self._placed(event)
            ident = self._ident(placed)
            if event.deleted and self.case["source"] in ENVELOPES:
                placed = replace(placed, order=self._order_of_row(newest.get(ident), ident, placed.order))
            if ident not in newest or placed.order >= newest[ident].order:
                newest[ident] = placed
        for ident, placed in newest.items():
            before = self.live.get(ident)
            known = before.order if before is not None else self._buried(ident)
            if known is not None and placed.order < known:
                continue
            if placed.deleted:
                self.live.pop(ident, None)
                self.buried[ident] = placed.order
            elif before is not None and self.case["index"] in ROWS_STAY:
                self.live[ident] = Placed(before.path, placed.order, placed.row)
            else:
                self.live[ident] = placed

    def again(self) -> None:
        """The case was edited: rows may be named otherwise from now on."""
        self.live = {self._ident(placed): placed for placed in self.live.values()}

    def rows(self) -> dict[Ident, Row]:
        """Columns by partition path and record key."""
        return {(placed.path, record_key(placed.row, self.case)): placed.row for placed in self.live.values()}

    def _placed(self, event: Event) -> Placed:
        values = row(event, odd(self.case))
        self.arrived += 1
        fields = {"none": (), "one": ("ts",), "several": ("ts", "seq")}[self.case["ordering"]]
        order = tuple(values[name] for name in fields) or (self.arrived,)
        return Placed(partition_path(values, self.case), order, values, event.deleted)

    def _ident(self, placed: Placed) -> Any:
        key = record_key(placed.row, self.case)
        return (placed.path, key) if self.case["index"] in BY_PARTITION else key

    def _order_of_row(self, newest: Placed | None, ident: Any, own: tuple[int, ...]) -> tuple[int, ...]:
        """A delete in an envelope names a key alone: with an ordering field it has the order of its row."""
        if self.case["ordering"] == "none":
            return own
        orders = [each.order for each in (newest, self.live.get(ident)) if each is not None]
        return max([*orders, self.buried.get(ident, (-(2**31),))])

    def _buried(self, ident: Any) -> tuple[int, ...] | None:
        return self.buried.get(ident) if self.case["index"] in STATES else None


def odd(case: Mapping[str, str]) -> bool:
    """Whether partition values have characters that must be escaped: only where they are."""
    return case["encoding"] == "true"


def record_key(values: Row, case: Mapping[str, str]) -> str:
    """A row's key as Hudi writes it."""
    if case["key"] == "several":
        return f"id:{values['id']},sub:{values['sub']}"
    return str(values["num" if case["key"] == "number" else "id"])


def partition_path(values: Row, case: Mapping[str, str]) -> str:
    """A row's partition path as Hudi's key generators make it."""
    time = values["at"].strftime("%Y/%m/%d")
    parts: list[tuple[str, Any]] = {
        "none": [],
        "text": [("city", values["city"])],
        "text, complex": [("city", values["city"])],
        "date": [("day", values["day"])],
        "number": [("zone", values["zone"])],
        "two fields": [("city", values["city"]), ("zone", values["zone"])],
        "times": [("at", time)],
        "texts of times": [("told", values["told"][:10] if values["told"] else "1970-01-01")],
        "custom": [("city", values["city"]), ("at", time)],
        "custom, three fields": [("city", values["city"]), ("zone", values["zone"]), ("id", values["id"])],
    }[case["layout"]]
    return "/".join(_segment(name, value, case) for name, value in parts)


def _segment(name: str, value: Any, case: Mapping[str, str]) -> str:
    text = _NULL if value is None else str(value)
    if case["encoding"] == "true":
        text = "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
    return f"{name}={text}" if case["hive style"] == "true" else text
