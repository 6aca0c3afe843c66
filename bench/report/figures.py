"""The values in the JSON lines for tables and plots: medians over runs, ratios within a run, failures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]
OURS = "tagstream"
_METADATA, _SERVICES = "+metadata", "+services"
_CASE = ("workload", "table_type", "keys", "records")


@dataclass(frozen=True)
class Spread:
    """The median of some runs, and the least and greatest of them."""

    median: float
    least: float
    greatest: float
    runs: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """None when there is no value."""
        found = [float(v) for v in values if v is not None]
        return Spread(statistics.median(found), min(found), max(found), len(found)) if found else None


@dataclass(frozen=True)
class Standing:
    """One writer in one situation.

    ``ratio``: how many times as fast this writer is as the peer, taken in each run. None for this writer itself, except
    with a metadata table or services: then it is compared with itself without them.
    """

    writer: str
    ours: bool
    per_second: Spread | None
    seconds: Spread | None
    best: float | None
    start: Spread | None
    bootstrap: Spread | None
    ratio: Spread | None
    peak_mib: float | None
    bytes: Spread | None
    right: bool | None
    failed: int
    problems: tuple[str, ...]

    @property
    def rows(self) -> str:
        """The result of the check of the rows, in a word."""
        if self.right is False:
            return "WRONG"
        if self.failed:
            return f"{self.failed} FAILED"
        return "unread" if self.right is None else "right"


@dataclass(frozen=True)
class Situation:
    """A workload on a table of one type with K keys, in batches of N, and the results of the writers."""

    workload: str
    table_type: str
    keys: int
    records: int
    standings: tuple[Standing, ...] = ()
    batches: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    every_batch: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Title for headings."""
        return f"{self.workload}, {type_name(self.table_type)}, K = {short(self.keys)}, N = {short(self.records)}"


def type_name(table_type: str) -> str:
    """A table type in words."""
    return {"MERGE_ON_READ": "merge-on-read", "COPY_ON_WRITE": "copy-on-write"}.get(table_type, table_type)


def short(number: float) -> str:
    """2000000 as 2 M; small numbers as they are."""
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.3g}" if isinstance(number, float) else f"{number:,}"


def of_kind(lines: Iterable[Line], kind: str) -> list[Line]:
    """Lines of a kind."""
    return [line for line in lines if line["kind"] == kind]


def grouped(lines: Iterable[Line], key: Callable[[Line], Hashable]) -> dict[Any, list[Line]]:
    """Lines by a key, in the order of each key's first line."""
    found: dict[Any, list[Line]] = {}
    for line in lines:
        found.setdefault(key(line), []).append(line)
    return found


def writer_name(line: Line) -> str:
    """Writer and index."""
    return f"{line.get('writer', '?')} {line.get('index') or ''}".strip()


def situations(lines: Sequence[Line]) -> list[Situation]:
    """All situations of the finished and the failed cases."""
    cases = [line for line in _with_sitting(lines) if line["kind"] in ("case", "failed")]
    batches = grouped(of_kind(lines, "batch"), _situation)
    found = []
    for key, mine in grouped(cases, _situation).items():
        writers = grouped(mine, writer_name)
        ours = {name: cases for name, cases in writers.items() if cases[0].get("writer") == OURS}
        own = grouped(batches.get(key, []), writer_name)
        found.append(
            Situation(
                **dict(zip(_CASE, key, strict=True)),
                standings=tuple(_standing(name, cases, ours) for name, cases in writers.items()),
                batches={name: _by_batch(b) for name, b in own.items()},
                every_batch={name: tuple(x["seconds"] for x in b if _measured(x)) for name, b in own.items()},
            )
        )
    return found


def _with_sitting(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines with their session, which begins with a machine line: two sessions may have the same run number."""
    sitting = 0
    for line in lines:
        sitting += line["kind"] == "machine"
        yield {**line, "run": line.get("run"), "sitting": sitting}


def _situation(line: Line) -> tuple[Any, ...]:
    return tuple(line.get(name, "?" if name in ("workload", "table_type") else 0) for name in _CASE)


def _measured(batch: Line) -> bool:
    """Whether a batch is after the warm-up."""
    return bool(batch["batch"] >= (5 if batch.get("records") == 1 else 2))


def _by_batch(batches: Iterable[Line]) -> dict[int, float]:
    """Median seconds over the runs, by the batch's number."""
    found = grouped(batches, lambda line: line["batch"])
    return {number: statistics.median(b["seconds"] for b in mine) for number, mine in sorted(found.items())}


def _standing(name: str, cases: Sequence[Line], ours: Mapping[str, Sequence[Line]]) -> Standing:
    done = [c for c in cases if c["kind"] == "case"]
    mine = cases[0].get("writer") == OURS
    rights = [c.get("right") for c in done]
    problems = [f"run {c.get('run')} failed: {c.get('reason') or 'no reason recorded'}" for c in cases if c not in done]
    problems += [
        f"run {c.get('run')}: rows are wrong: {c.get('wrong') or '?'}" for c in done if c.get("right") is False
    ]
    problems += [f"run {c.get('run')}: nobody has read the rows" for c in done if c.get("right") is None]
    return Standing(
        writer=name,
        ours=mine,
        per_second=Spread.of(c["records_per_second"] for c in done),
        seconds=Spread.of(c["median_seconds"] for c in done),
        best=min((c["best_seconds"] for c in done if c.get("best_seconds") is not None), default=None),
        start=Spread.of(c.get("start_seconds") for c in done),
        bootstrap=Spread.of(c.get("bootstrap_seconds") for c in done),
        ratio=None if mine and not name.endswith((_METADATA, _SERVICES)) else _ratio(name, done, ours),
        peak_mib=max((sum(c["peak_mib"].values()) for c in done if c.get("peak_mib")), default=None),
        bytes=Spread.of(c.get("bytes") for c in done),
        right=False if False in rights else None if None in rights else True,
        failed=len(cases) - len(done),
        problems=tuple(problems),
    )


def _ratio(name: str, peer: Sequence[Line], ours: Mapping[str, Sequence[Line]]) -> Spread | None:
    """A bucketed peer is compared with our bucketed writer if there is one, all others with the state index.

    A peer with a metadata table, or with services, is compared with our writer with the same.
    """
    if name in ours:
        own = ours.get(name.removesuffix(_SERVICES) if name.endswith(_SERVICES) else name.removesuffix(_METADATA), [])
    else:
        plain = name.removesuffix(_SERVICES).removesuffix(_METADATA)
        index = "BUCKET" if plain.endswith("BUCKET") and f"{OURS} BUCKET" in ours else "STATE"
        services = _SERVICES * name.endswith(_SERVICES)
        same = f"{OURS} {index}{_METADATA * (_METADATA in name)}{services}"
        own = (
            ours.get(same)
            or ours.get(f"{OURS} {index}{services}")
            or ours.get(f"{OURS} {index}")
            or next(iter(ours.values()), [])
        )
    by_run = {_run(c): c["records_per_second"] for c in own if c["kind"] == "case"}
    return Spread.of(by_run[_run(c)] / c["records_per_second"] for c in peer if _run(c) in by_run)


def _run(case: Line) -> tuple[int, Any]:
    return case["sitting"], case["run"]


def phases(lines: Sequence[Line], *, one_row: bool) -> dict[str, dict[str, float]]:
    """Median seconds of each phase of our batches after the warm-up, by situation; batches of one row, or the others."""
    mine = [b for b in of_kind(lines, "batch") if b.get("writer") == OURS and b.get("phases") and _measured(b)]
    mine = [b for b in mine if (b.get("records") == 1) is one_row]
    found = {}
    for key, batches in grouped(mine, lambda b: (*_situation(b), b.get("index"))).items():
        names = dict.fromkeys(name for b in batches for name in b["phases"])
        title = Situation(*key[:4]).title + ("" if key[4] == "STATE" else f", {key[4]}")
        found[title] = {n: statistics.median(b["phases"].get(n, 0.0) for b in batches) for n in names}
    return found


def latency_steps(lines: Sequence[Line]) -> dict[str, tuple[dict[str, Spread], Spread]]:
    """Spreads of each step's seconds over the batches of one row, and of the whole batch's, by table."""
    found = {}
    mine = [line for line in of_kind(lines, "latency") if line.get("steps")]
    for (table_type, keys), batches in grouped(mine, lambda b: (b.get("table_type"), b.get("keys"))).items():
        names = dict.fromkeys(name for b in batches for name in b["steps"])
        steps = {n: spread for n in names if (spread := Spread.of(b["steps"].get(n) for b in batches))}
        whole = Spread.of(b["seconds"] for b in batches)
        assert whole is not None
        found[f"{type_name(str(table_type))}, K = {short(keys or 0)}"] = steps, whole
    return found


def spreads(lines: Iterable[Line], key: Sequence[str], value: str) -> dict[tuple[Any, ...], Spread]:
    """Spread of a value, by some members of the lines."""
    found = {}
    for group, mine in grouped(lines, lambda line: tuple(line.get(name) for name in key)).items():
        spread = Spread.of(line.get(value) for line in mine)
        if spread is not None:
            found[group] = spread
    return found


def problems(lines: Sequence[Line], found: Sequence[Situation]) -> list[str]:
    """All failures and wrong results, as sentences."""
    out = [f"{s.title}: {w.writer}: {p}" for s in found for w in s.standings for p in w.problems]
    for table_type, keys in dict.fromkeys(
        (line.get("table_type"), line.get("keys")) for line in of_kind(lines, "latency") if line.get("right") is False
    ):
        out.append(f"latency, {type_name(str(table_type))}, K = {short(keys or 0)}: rows are wrong")
    for line in of_kind(lines, "soak"):
        if line.get("summary") and not line.get("right"):
            why = line.get("wrong") or f"the job ended with exit code {line.get('exit_code')}"
            out.append(f"soak at {short(line.get('rate', 0))} records/s, run {line.get('run')}: {why}")
    return out
