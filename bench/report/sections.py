"""The parts of the page: the cards, the plots, the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from bench.report import plots as draw
from bench.report.figures import (
    Line,
    Situation,
    Spread,
    grouped,
    latency_steps,
    of_kind,
    phases,
    short,
    spreads,
    type_name,
)
from bench.report.promises import COLUMNS, promises

_DRAWN = frozenset({"machine", "case", "failed", "batch", "limit", "soak", "driver", "latency"})
_PEERS = {
    "hudi-spark": "Hudi on Spark's best",
    "hudi-flink": "Hudi on Flink",
    "paimon-flink": "Paimon's best",
    "delta-rs": "delta-rs",
}
_SOAK_KINDS = ("driver", "jvm", "workers")
_ACROSS = {"file_groups": "file groups", "touched": "file groups touched", "instants": "commits on the timeline"}


@dataclass(frozen=True)
class Card:
    """A ratio in large type."""

    value: Spread
    what: str
    where: str


@dataclass(frozen=True)
class Plot:
    """A picture with its heading and a line below it."""

    section: str
    title: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Table:
    """Rows of strings and spreads; ``how`` names each column's format."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    how: tuple[str, ...]


def cards(found: Sequence[Situation]) -> list[Card]:
    """Our writer compared with the best of each engine, in the situation with most keys, by workload and table type."""
    out = []
    largest: dict[tuple[str, str], Situation] = {}
    for s in sorted(found, key=lambda s: s.keys):
        largest[s.workload, s.table_type] = s
    for most in largest.values():
        for engine, name in _PEERS.items():
            ratios = [s.ratio for s in most.standings if s.ratio and s.writer.startswith(engine)]
            if ratios:
                out.append(Card(min(ratios, key=lambda r: r.median), name, most.title))
    return out


def plots(lines: Sequence[Line], found: Sequence[Situation]) -> list[Plot]:
    """All plots with figures."""
    makers: tuple[Callable[[], Iterator[Plot]], ...] = (
        lambda: _speeds(found),
        lambda: _by_batch(found),
        lambda: _by_keys(found),
        lambda: _phases(lines),
        lambda: _latency(found),
        lambda: _steps(lines),
        lambda: _tag(lines),
        lambda: _soak(lines),
        lambda: _driver(lines),
    )
    return [plot for make in makers for plot in make()]


def _plot(section: str, title: str, note: str, svg: str) -> Plot:
    return Plot(section, title, note, Markup(svg))


def _speeds(found: Sequence[Situation]) -> Iterator[Plot]:
    for s in found:
        values = {w.writer: w.per_second for w in s.standings if w.per_second}
        if values and s.records > 1:
            runs = max(v.runs for v in values.values())
            yield _plot("Records a second", s.title, _of_runs(runs),
                        draw.bars(values, "records/s"))  # fmt: skip


def _of_runs(runs: int) -> str:
    return "one run" if runs == 1 else f"median of {runs} runs; the line is from least to greatest"


def _by_batch(found: Sequence[Situation]) -> Iterator[Plot]:
    for s in found:
        if s.records > 1 and any(len(b) > 2 for b in s.batches.values()):
            yield _plot("Batch by batch", s.title, "the first two are warm-up; median over the runs",
                        draw.lines(s.batches, "batch", "s", log_y=True, whole=True))  # type: ignore[arg-type] # fmt: skip


def _by_keys(found: Sequence[Situation]) -> Iterator[Plot]:
    by_kind: dict[tuple[str, str, int], list[Situation]] = {}
    for s in found:
        by_kind.setdefault((s.workload, s.table_type, s.records), []).append(s)
    for (workload, table_type, records), mine in by_kind.items():
        if len({s.keys for s in mine}) < 2:
            continue
        series: dict[str, dict[float, float]] = {}
        for s in mine:
            for w in s.standings:
                if w.seconds:
                    series.setdefault(w.writer, {})[s.keys] = w.seconds.median
        title = f"{workload}, {type_name(table_type)}, N = {short(records)}"
        yield _plot("What a larger table costs", title, "median seconds of a batch by existing keys",
                    draw.lines(series, "existing keys", "s a batch", log_x=True, log_y=True))  # fmt: skip


def _phases(lines: Sequence[Line]) -> Iterator[Plot]:
    for one_row, title in ((False, "by situation"), (True, "batches of one row")):
        found = phases(lines, one_row=one_row)
        if found:
            note = "median of each phase over the batches after the warm-up"
            yield _plot("Where our batch spends its time", title, note, draw.stacked(found, "s a batch"))


def _latency(found: Sequence[Situation]) -> Iterator[Plot]:
    for s in found:
        values = {name: seconds for name, seconds in s.every_batch.items() if seconds}
        if s.records == 1 and values:
            yield _plot("Latency of one row", s.title, "a dot a batch of all runs, the stroke is the median",
                        draw.dots(values, "s from trigger to commit"))  # fmt: skip


def _steps(lines: Sequence[Line]) -> Iterator[Plot]:
    for title, (steps, whole) in latency_steps(lines).items():
        note = f"our batches of one row, median of {whole.runs}; the whole batch {whole.median * 1000:,.0f} ms"
        drawn = draw.waterfall({name: s.median * 1000 for name, s in steps.items()}, "ms")
        yield _plot("The fixed cost of a batch, step by step", title, note, drawn)


def _tag(lines: Sequence[Line]) -> Iterator[Plot]:
    series: dict[str, dict[float, float]] = {}
    for line in of_kind(lines, "tag"):
        for name, member in (("tag step", "per_second"), ("raw multi-get beside it", "raw_per_second")):
            if line.get(member) and line.get("keys"):
                series.setdefault(name, {})
    for name, member in (("tag step", "per_second"), ("raw multi-get beside it", "raw_per_second")):
        if name in series:
            found = spreads(of_kind(lines, "tag"), ("keys",), member)
            series[name] = {keys[0]: s.median for keys, s in found.items() if keys[0]}
    for (name, keys), s in spreads(of_kind(lines, "limit"), ("limit", "keys"), "per_second").items():
        if keys:
            series.setdefault(str(name), {})[keys] = s.median
    if series:
        yield _plot("The tag step and the look-up below it", "one core, by existing keys",
                    "median of the runs; the distance between the lines is the cost of deciding and recording",
                    draw.lines(series, "existing keys", "a second", log_x=True))  # fmt: skip


def _soak(lines: Sequence[Line]) -> Iterator[Plot]:
    samples = [s for s in of_kind(lines, "soak") if not s.get("summary")]
    for (run, rate), mine in grouped(samples, lambda s: (s.get("run"), s.get("rate"))).items():
        title = f"run {run}, {short(round(rate or 0))} records/s"
        minutes = [s["at"] / 60 for s in mine]
        lag = {"records behind": dict(zip(minutes, (s["lag"] for s in mine), strict=True))}
        yield _plot("A steady stream from Kafka", f"Lag: {title}", "records of the topic without a commit yet",
                    draw.lines(lag, "minutes", "records", markers=False))  # fmt: skip
        memory = {
            kind: dict(zip(minutes, (s["mib"][kind] for s in mine), strict=True))
            for kind in _SOAK_KINDS
            if all(kind in s["mib"] for s in mine)
        }
        yield _plot("A steady stream from Kafka", f"Memory: {title}", "resident; pages that workers share count once",
                    draw.lines(memory, "minutes", "MiB", markers=False))  # fmt: skip


def _driver(lines: Sequence[Line]) -> Iterator[Plot]:
    found = of_kind(lines, "driver")
    for when, across, fixed, title, note in (
        (
            "batch",
            "file_groups",
            "touched",
            "by file groups of the table",
            "a batch that touches the same number of them",
        ),
        ("batch", "touched", "file_groups", "by file groups that a batch touches", "the same table"),
        ("batch", "instants", "file_groups", "by commits on the timeline", "which are not archived yet"),
        ("start", "file_groups", "key_groups", "at a start", "once, not in every batch"),
    ):
        mine = [line for line in found if line.get("when") == when and line.get(across) is not None]
        mine = _one_size(mine, across, fixed)
        series: dict[str, dict[float, float]] = {}
        for (step, at), s in spreads(mine, ("step", across), "seconds").items():
            series.setdefault(str(step), {})[at] = s.median
        series = {step: points for step, points in series.items() if len(points) > 1}
        if series:
            largest = sorted(series, key=lambda step: -max(series[step].values()))[:8]
            yield _plot("The driver's part", title, f"{note}; the eight steps that take longest, median of the runs",
                        draw.lines({s: series[s] for s in largest}, _ACROSS[across], "s", log_x=True,
                                   log_y=True))  # fmt: skip


def _one_size(lines: Sequence[Line], across: str, fixed: str) -> list[Line]:
    """Lines that differ only in ``across``: the other sizes are those with which most of its values were measured."""
    others = [n for n in ("file_groups", "touched", "key_groups", "instants") if n != across]
    found = grouped(lines, lambda line: tuple(line.get(n) for n in others))
    if not found:
        return []
    place = others.index(fixed) if fixed in others else 0
    best = max(found, key=lambda k: (len({line[across] for line in found[k]}), k[place] or 0))
    wanted = dict(zip(others, best, strict=True))
    return [line for line in lines if all(line.get(n) == v for n, v in wanted.items())]


def tables(lines: Sequence[Line]) -> list[Table]:
    """What the writers guarantee, limits, soak, driver; then every kind without its own form."""
    out = []
    engines = {line["writer"] for line in (*of_kind(lines, "case"), *of_kind(lines, "failed"))}
    if rows_of_promises := promises(engines):
        note = "the conditions of these figures, with the versions above"
        out.append(Table("What each writer guarantees", note, COLUMNS, rows_of_promises, ("text",) * len(COLUMNS)))
    found = of_kind(lines, "limit")
    if found:
        of = ("limit", "keys", "unit", "note")
        limits = [(k[0], k[1], s, k[2], s.runs, k[3]) for k, s in spreads(found, of, "per_second").items()]
        out.append(Table("Physical limits", "the limits of this machine, without a writer",
                         ("limit", "existing keys", "a second", "unit", "runs", "of"), tuple(limits),
                         ("text", "number", "spread", "text", "number", "text")))  # fmt: skip
    for title, (steps, whole) in latency_steps(lines).items():
        spent = [(name, s, s.runs) for name, s in (*steps.items(), ("the whole batch", whole))]
        note = "our batches of one row after the warm-up; median, least and greatest"
        shown, forms = ("step", "time", "batches"), ("text", "spread seconds", "number")
        out.append(Table(f"Steps of a batch: {title}", note, shown, tuple(spent), forms))
    out += _soak_table(lines)
    found = of_kind(lines, "driver")
    if found:
        keys = ("when", "step", "file_groups", "touched", "small_file_groups", "key_groups", "instants")
        sizes = spreads(found, keys, "bytes")
        rows = [
            (*k, s, sizes[k].median if k in sizes else None, s.runs) for k, s in spreads(found, keys, "seconds").items()
        ]
        columns = ("when", "step", "file groups", "touched", "small", "key groups", "commits", "time", "bytes", "runs")
        note = "no Spark; the cost of each step of a start, a batch, a task or a rollback"
        how = ("text", "text", *["number"] * 5, "spread seconds", "number", "number")
        out.append(Table("The driver's steps, simulated", note, columns, tuple(rows), how))
    for kind, mine in grouped(lines, lambda line: line["kind"]).items():
        if kind not in _DRAWN:
            out.append(_any_table(kind, mine))
    return out


def _soak_table(lines: Sequence[Line]) -> list[Table]:
    ends = [s for s in of_kind(lines, "soak") if s.get("summary")]
    rows = []
    for s in ends:
        memory = s.get("memory_slope") or {}
        rows.append((
            s.get("run"), s.get("rate"), s.get("table_type"), s.get("seconds"), s.get("records"), s.get("lag_median"),
            s.get("lag_greatest"), s.get("lag_slope"), *(memory.get(kind) for kind in _SOAK_KINDS), s.get("batches"),
            s.get("batch_seconds"), s.get("batch_seconds_greatest"), "right" if s.get("right") else "WRONG",
        ))  # fmt: skip
    if not rows:
        return []
    columns = ("run", "records/s", "table", "s", "records", "lag, median", "lag, greatest", "lag grows by, records/s",
               "driver grows by, MiB/min", "JVM, MiB/min", "workers, MiB/min", "batches", "s a batch", "longest",
               "rows")  # fmt: skip
    note = "growth by least squares: of the lag after half a minute, of memory after two minutes"
    return [Table("Soak", note, columns, tuple(rows), ("number",) * 14 + ("text",))]


def _any_table(kind: str, lines: Sequence[Line]) -> Table:
    """Members with fractions are measured values, the others identify them. A row for each of these, over the runs."""
    flat = [_flat(line) for line in lines]
    names = list(dict.fromkeys(n for line in flat for n in line if n not in ("kind", "run", "batch")))
    measured = [n for n in names if any(isinstance(line.get(n), float) for line in flat)]
    of = [n for n in names if n not in measured]
    rows = []
    for mine in grouped(flat, lambda line: tuple(str(line.get(n)) for n in of)).values():
        first = [mine[0].get(n) for n in of]
        rows.append((*first, *(Spread.of(_number(line.get(n)) for line in mine) for n in measured), len(mine)))
    columns = (*(n.replace("_", " ") for n in (*of, *measured)), "lines")
    how = ("number",) * len(of) + ("spread",) * len(measured) + ("number",)
    return Table(kind, "the median of the lines, and after it the least and the greatest", columns, tuple(rows), how)


def _flat(line: Line) -> dict[str, Any]:
    """The line with the members of its members."""
    found: dict[str, Any] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= {f"{name} {inner}": x for inner, x in value.items() if not isinstance(x, dict | list)}
        elif not isinstance(value, list):
            found[name] = value
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
