"""``--dry-run``: print what a start would do, without Spark and without changing anything.

The output has facts by name, and lists after them: a table on a terminal, `name: value` lines in a pipe.
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
from tagstream.index.registry import INDEX_TYPES
from tagstream.state.checkpoint import INDEX, META_FILE, current_query_folder, is_unfinished, read_meta
from tagstream.state.index_loads import read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.metadata_prepare import unkept
from tagstream.streaming.batch.report import size
from tagstream.streaming.job.first_records import with_first_schema
from tagstream.streaming.job.preflight import Ready, check_start, stream_problem
from tagstream.streaming.job.schema_match import waits_for_records
from tagstream.streaming.job.session import spark_needs
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.append_guard import append_problem, without_older_copy
from tagstream.streaming.recovery.cover import is_as_asked
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import RETAINED_BATCHES, CheckpointState, IndexPlace
from tagstream.streaming.recovery.takeover import read_query_index_load
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

_SHOWN = 30


class Page:
    """Collects the output, and writes it once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, str]] = []
        self._lists: list[tuple[str, list[str]]] = []

    def row(self, name: str, value: str) -> None:
        """Add a fact."""
        self._rows.append((name, value))

    def list(self, name: str, items: list[str]) -> None:
        """Add several items of a kind. A terminal shows only the first ones."""
        self._lists.append((name, items))

    def write(self, out: TextIO, *, terminal: bool | None = None) -> None:
        """Write everything. ``terminal`` None: detect whether the stream is a terminal."""
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
                console.print(Text(f"  and {len(items) - _SHOWN:,} more; a pipe gets all"))


def explain_start(options: Options, out: TextIO, env: Mapping[str, str], now_ms: int) -> bool:
    """Write what a start with these options would do. Returns False when it would end with an error.

    An error that a start would raise before it changes anything is raised here, too.
    """
    options = with_first_schema(options)
    ready = check_start(options, env, now_ms, spark_needs(options, env))
    table, config = ready.table, ready.table.config
    if ready.new:
        page = Page(f"table {config.name} at {table.base_path}")
        index = f"with the index {options.index.type}"
        if options.state_index:
            index = "with an empty index"
        elif options.appends:
            index = f"with {options.table.operation}, which looks up no key"
        _warnings(page, options, ready)
        columns = ""
        if waits_for_records(options):
            columns = " with the columns of the first record that contains its schema, which only a start reads"
        elif options.source.first_schema is not None:
            columns = f" with the columns of {options.source.first_schema.source}"
        page.row("would do", f"make the table ({config.table_type}){columns}, and stream into it {index}")
        page.write(out)
        return True
    checkpoint = open_storage(options.run.checkpoint_dir)
    page = Page(f"table {config.name} at {table.base_path}")
    timeline = table.timeline()
    _table_rows(page, options, table, timeline)
    _checkpoint_rows(page, checkpoint)
    if ready.taken_over is not None:
        page.row("taken over", ready.taken_over)
    if ready.changes is not None:
        page.row("new properties", f"the table has no commit yet and gets the job's properties: {ready.changes}")
    _warnings(page, options, ready)
    would, fine = _decide(page, options, table, timeline, checkpoint)
    page.row("would do", would)
    page.write(out)
    return fine


def _warnings(page: Page, options: Options, ready: Ready) -> None:
    warning_texts = [*options.warnings, *ready.warnings]
    if warning_texts:
        page.list("warning", warning_texts)


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
    problem = stream_problem(table, options.index)
    if problem is not None:
        page.row("a stream", f"will not start: {problem}")


def _metadata(options: Options, table: HoodieTable) -> str:
    """The partitions of the metadata table, and which of them a stream keeps in sync."""
    names, found = ", ".join(table.config.metadata_partitions), unkept(table, options.metadata)
    if found.whole is not None:
        return f"{names} (a stream drops it: {found.whole})"
    goes = "".join(f"; a stream drops {name}: {why}" for name, why in found.partitions.items())
    return f"{names} (a stream keeps it in sync{goes})"


def _instant(instant: Instant) -> str:
    return f"{instant.time} {instant.action} {instant.state.lower()}"


def _checkpoint_rows(page: Page, checkpoint: Storage) -> None:
    page.row("checkpoint", checkpoint.root)
    if is_unfinished(checkpoint):
        page.row("in it", "files of an interrupted rescale or import; a start removes them")
    if checkpoint.exists(META_FILE):
        meta = read_meta(checkpoint)
        page.row("fixed in it", f"{meta.key_groups} key groups, {meta.shuffle_partitions} shuffle partitions, "
                                f"stream {meta.stream_id or '(not named yet)'}")  # fmt: skip


def _decide(
    page: Page, options: Options, table: HoodieTable, timeline: Timeline, checkpoint: Storage
) -> tuple[str, bool]:
    """What a start would do, and whether it would succeed. The files that an index load would read are added to the
    page.
    """
    problem = None if options.run.bootstrap_only else stream_problem(table, options.index)
    if problem is not None:
        return f"end with an error: {problem}", False
    then = "end" if options.run.bootstrap_only else "stream"
    # A start would remove unfinished files. A folder that does not exist has the same effect here.
    query_folder = checkpoint.below("removed") if is_unfinished(checkpoint) else current_query_folder(checkpoint).files
    state = CheckpointState.read(query_folder)
    layout = StateLayout(query_folder.below(INDEX), "")
    taken = read_query_index_load(query_folder)
    index_load = taken.index_load if taken is not None else 0
    files = options.source.kind != "kafka"
    pull = not options.state_index
    try:
        place = IndexPlace(query_folder, layout, index_load, RETAINED_BATCHES, files, options.stream_id or "", pull)
        step = next_step(place, table, timeline, state, taken)
    except IndexCoverageError as e:
        return f"end with an error: {e}", False
    new = state.query_id is None or state.planned is None
    stream_id = options.stream_id or ""
    step = without_older_copy(options, table, timeline, step, query_folder, stream_id=stream_id, new=new)
    doubled = append_problem(options, table, timeline, step, stream_id=stream_id, new=new)
    if doubled is not None:
        return f"end with an error: {doubled}", False
    if options.appends and step.kind not in ("retire", "reread"):
        return f"{then}; {options.table.operation} looks up no key", True
    if pull and step.kind not in ("retire", "reread"):
        own = (
            ""
            if INDEX_TYPES[options.index.type].is_implicit_with_storage
            else ", and it is filled where it lacks some of them"
        )
        return f"{then}; the {options.index.type} index is asked in each batch where the keys are{own}", True
    if step.kind == "nothing" and taken is not None and new and not is_as_asked(layout, options, taken.index_load):
        step = CoverStep("load", "the index was loaded with other options")
    if step.kind == "nothing":
        if not timeline.completed_writes:
            return f"load nothing, since the table has no rows; {then}", True
        if taken is not None and new:
            marker = read_marker(layout, taken.index_load)
            assert marker is not None
            return f"use the index that was loaded as of {marker.instant} ({marker.live:,} keys); {then}", True
        return (
            f"continue: the index in the checkpoint covers the table (batch {state.finished} is its newest); {then}",
            True,
        )
    if not options.state.bootstrap_enabled:
        return f"end with an error: {step.why}, and index.bootstrap.enabled=false", False
    if step.kind == "catch up":
        touched = plan_catch_up(table, step.found.uncovered, options.state.partition_regex)
        page.row("behind by", step.why)
        meta = read_meta(checkpoint)
        if not touched.too_big(meta.key_groups, meta.ordering):
            _plan_rows(page, touched.plan)
            return f"let the index catch up with {len(touched.touched):,} file groups, then {then}", True
    if step.kind in ("retire", "reread"):
        page.row("found", step.why)
        return (
            f"retire the query in the checkpoint, load the index from the table, then {then} from where its newest commit "
            "of this stream ended"
        ), True
    plan = plan_bootstrap(table, options.state.partition_regex)
    _plan_rows(page, plan)
    if plan.missing and options.state.corrupt_files == "fail":
        return (
            "end with an error: files that commits name are missing (index.bootstrap.corrupt.files=skip skips them)",
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
