"""``--dry-run``: what a start would do, printed without Spark and without changing anything.

The output has facts by name, and lists under them: a table on a terminal, `name: value` lines in a pipe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.bootstrap.plan import BootstrapPlan, plan_bootstrap
from tagstream.index.registry import FACTS, STATE
from tagstream.state.checkpoint import INDEX, META_FILE, current_root, is_unfinished, read_meta
from tagstream.state.index_loads import read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.metadata_prepare import unkept
from tagstream.streaming.batch.report import size
from tagstream.streaming.job.first_records import with_first_schema
from tagstream.streaming.job.preflight import Ready, look, stream_problem
from tagstream.streaming.job.schema_match import waits_for_records
from tagstream.streaming.job.session import spark_needs
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.cover import is_as_asked
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import RETAINED_BATCHES, CheckpointState, IndexPlace
from tagstream.streaming.recovery.takeover import read_takeover
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

_SHOWN = 30


class Page:
    """Collects what is to be said, and writes it once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, str]] = []
        self._lists: list[tuple[str, list[str]]] = []

    def row(self, name: str, value: str) -> None:
        """A fact."""
        self._rows.append((name, value))

    def list(self, name: str, items: list[str]) -> None:
        """Several items of a kind; on a terminal only the first are shown."""
        self._lists.append((name, items))

    def write(self, out: TextIO, *, terminal: bool | None = None) -> None:
        """Write everything; ``terminal`` None: as the stream is."""
        if not (out.isatty() if terminal is None else terminal):
            lines = [self._title, *(f"{name}: {value}" for name, value in self._rows)]
            for name, items in self._lists:
                lines += [f"{name}: {item}" for item in items]
            out.write("\n".join(lines) + "\n")
            return
        console = Console(file=out, force_terminal=True, highlight=False)
        table = Table(title=Text(self._title), title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in self._rows:
            table.add_row(name, Text(value))
        console.print(table)
        for name, items in self._lists:
            console.print(Text(name, style="bold"))
            for item in items[:_SHOWN]:
                console.print(Text(f"  {item}"))
            if len(items) > _SHOWN:
                console.print(Text(f"  and {len(items) - _SHOWN:,} more; all in a pipe"))


def explain_start(options: Options, out: TextIO, env: Mapping[str, str], now_ms: int) -> bool:
    """Write what a start with these options would do; False when it would end with an error.

    What a start would refuse before it changes anything is raised, as a start would raise it.
    """
    options = with_first_schema(options)
    ready = look(options, env, now_ms, spark_needs(options, env))
    table, config = ready.table, ready.table.config
    if ready.new:
        page = Page(f"table {config.name} at {table.base_path}")
        index = "with an empty index" if options.index.type == STATE else f"with the index {options.index.type}"
        _warnings(page, options, ready)
        columns = ""
        if waits_for_records(options):
            columns = " with the columns of the first record that has its schema with it, which only a start reads"
        elif options.first_schema is not None:
            columns = f" with the columns of {options.first_schema.source}"
        page.row("would do", f"make the table ({config.table_type}){columns}, and stream into it {index}")
        page.write(out)
        return True
    checkpoint = open_storage(options.checkpoint_dir)
    page = Page(f"table {config.name} at {table.base_path}")
    timeline = table.timeline()
    _table_rows(page, options, table, timeline)
    _checkpoint_rows(page, checkpoint)
    if ready.taken_over is not None:
        page.row("taken over", ready.taken_over)
    if ready.changes is not None:
        page.row("new properties", f"it has no commit yet and takes the job's: {ready.changes}")
    _warnings(page, options, ready)
    would, fine = _decide(page, options, table, timeline, checkpoint)
    page.row("would do", would)
    page.write(out)
    return fine


def _warnings(page: Page, options: Options, ready: Ready) -> None:
    told = [*options.warnings, *ready.warnings]
    if told:
        page.list("warning", told)


def _table_rows(page: Page, options: Options, table: HoodieTable, timeline: Timeline) -> None:
    config = table.config
    page.row("type", f"{config.table_type}, table version {config.version}")
    page.row("record key", ", ".join(config.record_key_fields) or "(not in the properties)")
    page.row("partitioned by", ", ".join(config.partition_fields) or "nothing")
    page.row("ordered by", ", ".join(config.deciding_fields) or f"nothing ({config.merge_mode.value})")
    page.row("newest commit", timeline.newest_completed or "none")
    if timeline.pending:
        shown = ", ".join(_instant(i) for i in timeline.pending[:3])
        page.row("pending instants", f"{len(timeline.pending):,} ({shown}{', ...' if timeline.pending[3:] else ''})")
    if config.metadata_partitions:
        page.row("metadata table", _metadata(options, table))
    problem = stream_problem(table, options.index.type)
    if problem is not None:
        page.row("a stream", f"will not start: {problem}")


def _metadata(options: Options, table: HoodieTable) -> str:
    """The partitions of the metadata table, and which of them a stream keeps in step."""
    names, found = ", ".join(table.config.metadata_partitions), unkept(table, options.metadata)
    if found.whole is not None:
        return f"{names} (a stream drops it: {found.whole})"
    goes = "".join(f"; a stream drops {name}, {why}" for name, why in found.partitions.items())
    return f"{names} (kept in step by a stream{goes})"


def _instant(instant: Instant) -> str:
    return f"{instant.time} {instant.action} {instant.state.lower()}"


def _checkpoint_rows(page: Page, checkpoint: Storage) -> None:
    page.row("checkpoint", checkpoint.root)
    if is_unfinished(checkpoint):
        page.row("in it", "what a rescale or import left that did not come to its end; it is removed")
    if checkpoint.exists(META_FILE):
        meta = read_meta(checkpoint)
        page.row("fixed in it", f"{meta.key_groups} key groups, {meta.shuffle_partitions} shuffle partitions, "
                                f"stream {meta.stream_id or '(still to be named)'}")  # fmt: skip


def _decide(
    page: Page, options: Options, table: HoodieTable, timeline: Timeline, checkpoint: Storage
) -> tuple[str, bool]:
    """What a start would do, and whether it would go well; what a load would read is added to the page."""
    problem = None if options.bootstrap_only else stream_problem(table, options.index.type)
    if problem is not None:
        return f"end with an error: {problem}", False
    then = "end" if options.bootstrap_only else "stream"
    # A start would remove what is unfinished: here a folder that is not there stands for it.
    root = checkpoint.below("removed") if is_unfinished(checkpoint) else current_root(checkpoint).files
    state = CheckpointState.read(root)
    layout = StateLayout(root.below(INDEX), "")
    taken = read_takeover(root)
    generation = taken.generation if taken is not None else 0
    files = options.source_class != "kafka"
    pull = options.index.type != STATE
    try:
        place = IndexPlace(root, layout, generation, RETAINED_BATCHES, files, options.stream_id or "", pull)
        step = next_step(place, table, timeline, state, taken)
    except IndexCoverageError as e:
        return f"end with an error: {e}", False
    if pull and step.kind not in ("retire", "reread"):
        own = (
            ""
            if FACTS[options.index.type].is_implicit_with_storage
            else ", and it is filled where it lacks some of them"
        )
        return f"{then}; the {options.index.type} index is asked in each batch where the keys are{own}", True
    new = state.query_id is None or state.planned is None
    if step.kind == "nothing" and taken is not None and new and not is_as_asked(layout, options, taken.generation):
        step = CoverStep("load", "the loaded index is not as these options ask for")
    if step.kind == "nothing":
        if not timeline.completed_writes:
            return f"nothing needs to be loaded, the table has no rows; {then}", True
        if taken is not None and new:
            marker = read_marker(layout, taken.generation)
            assert marker is not None
            return f"use the index that was loaded as of {marker.instant} ({marker.live:,} keys); {then}", True
        return (
            f"go on: the index in the checkpoint covers the table (batch {state.finished} is its newest); {then}",
            True,
        )
    if not options.index_bootstrap_enabled:
        return f"end with an error: {step.why}, and index.bootstrap.enabled=false", False
    if step.kind == "catch up":
        touched = plan_catch_up(table, step.found.uncovered, options.index_partition_regex)
        page.row("behind by", step.why)
        meta = read_meta(checkpoint)
        if not touched.too_big(meta.key_groups, meta.ordering):
            _plan_rows(page, touched.plan)
            return f"catch the index up with {len(touched.touched):,} file groups, then {then}", True
    if step.kind in ("retire", "reread"):
        page.row("found", step.why)
        return (
            f"put Spark's part of the checkpoint aside, load the index from the table, then {then} where its newest commit "
            "of this stream ended"
        ), True
    plan = plan_bootstrap(table, options.index_partition_regex)
    _plan_rows(page, plan)
    if plan.missing and options.index_bootstrap_corrupt == "fail":
        return (
            "end with an error: files that commits name are missing (index.bootstrap.corrupt.files=skip passes over them)",
            False,
        )
    return f"load the index from the table, then {then}", True


def _plan_rows(page: Page, plan: BootstrapPlan) -> None:
    slices = [planned.file_slice for planned in plan.slices]
    bases = sum(s.base_file is not None for s in slices)
    logs = sum(len(s.log_files) for s in slices)
    only_logs = len(slices) - bases
    expected = f"{plan.expected_rows:,} in base files"
    expected += f", and those of {plan.uncounted:,} files whose commits are archived" if plan.uncounted else ""
    if logs:
        writes, deletes = (sum(getattr(s, name) for s in plan.slices) for name in ("log_writes", "log_deletes"))
        expected += f"; logs have {writes:,} records and {deletes:,} deletes over them"
    page.row("as of", plan.instant or "-")
    page.row("file slices", f"{len(slices):,}" + (f" ({only_logs:,} of log files only)" if only_logs else ""))
    page.row("files to read", f"{plan.files:,} ({bases:,} base, {logs:,} log)")
    page.row("bytes", f"{size(plan.size)} (of base files only the key and ordering columns are read)")
    page.row("keys expected", expected)
    page.row("partitions", f"{len({s.partition_path for s in slices}):,}")
    page.row("scan tasks", f"{len(plan.tasks()):,}")
    kinds = Counter(re.sub(r"\s.*", "", item.what) for item in plan.left_out)
    if kinds:
        page.row("left out", ", ".join(f"{n:,} {kind}s" for kind, n in sorted(kinds.items())))
        page.list("left out", [f"{item.what}: {item.why}" for item in plan.left_out])
    if plan.missing:
        page.row("missing files", f"{len(plan.missing):,}")
        page.list("missing files (a commit names them)", list(plan.missing))
