"""``tagstream status``: the state of a stream and how its runs have ended. It needs no running job."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass

from tagstream.cli.command import Clock, Command, add_checkpoint
from tagstream.cli.output import Fact, Output
from tagstream.cli.quarantine import bad_records, open_checkpoint
from tagstream.state.checkpoint import current_query_folder, read_meta
from tagstream.streaming.batch.spark_checkpoint import newest_batch, unfinished_batch
from tagstream.streaming.monitor.health import BAD_RECORDS_ERROR, RESTARTING_AFTER, Stops, read_stops, show_bad
from tagstream.streaming.monitor.values import moment
from tagstream.table.errors import TableError
from tagstream.table.storage.opening import open_storage
from tagstream.table.timeline.lease import Lease, current


@dataclass(frozen=True)
class StreamState:
    """The state of a stream (running, ended, failed, killed, unknown), a sentence about it, and the recorded runs."""

    state: str
    text: str
    stops: Stops


def run_status(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Show the state. Exit code 1 when runs fail or are killed repeatedly, or bad records have stopped the last one."""
    checkpoint = open_checkpoint(arguments.checkpoint_dir)
    meta, root = read_meta(checkpoint), current_query_folder(checkpoint).files
    at_hand = unfinished_batch(root)
    lease = None
    if meta.table is not None:
        with suppress(OSError, TableError):
            lease = current(open_storage(meta.table.path))
    at = stream_state(read_stops(checkpoint), lease, at_hand, clock_ms())
    bad = sum(1 for _ in bad_records(checkpoint))
    stops = at.stops
    out.facts(
        [
            Fact("checkpoint", "checkpoint", checkpoint.root),
            Fact("stream_id", "stream", meta.stream_id or None),
            Fact("table_path", "table", meta.table.path if meta.table is not None else None),
            Fact("state", "state", at.state, "name"),
            Fact("text", "", at.text),
            Fact("batch_finished", "newest batch", newest_batch(root, "commits"), "count"),
            Fact("batch_planned", "planned, not finished", at_hand, "count"),
            Fact("in_row", "runs without a commit", stops.in_row, "count"),
            Fact("killed_in_row", "of them killed", stops.killed_in_row, "count"),
            Fact(
                "errors",
                "runs ended by",
                ", ".join(f"{name} {n:,}" for name, n in sorted(stops.counts.items())) or None,
            ),
            Fact("bad_records", "bad records kept", bad, "count"),
        ]
    )
    if bad:
        out.note(show_bad(checkpoint.root))
    stopped = stops.in_row and stops.last is not None and stops.last.error == BAD_RECORDS_ERROR
    return 1 if stops.in_row >= RESTARTING_AFTER or stopped else 0


def stream_state(noted: Stops, lease: Lease | None, batch_at_hand: int | None, now_ms: int) -> StreamState:
    """The state by the recorded runs. ``lease``: of the table; a run that has begun and does not hold it was killed.

    ``batch_at_hand``: the planned batch that is not finished. ``now_ms``: milliseconds since 1970.
    """
    begun = noted.begun
    if begun is not None:
        held = None if lease is None or lease.released or now_ms >= lease.expires_ms else lease.owner
        if held is not None and (held.host, held.pid) == (begun.host, begun.pid):
            text = f"process {begun.pid} on {begun.host}, since {moment(begun.at_ms)}"
            return StreamState("running", text, noted)
        noted = noted.killed(batch_at_hand, None if lease is None else lease.renewed_ms)
    end = noted.end
    if end is None:
        return StreamState("unknown", "no run has recorded how it ended", noted)
    state = "killed" if begun is not None else "failed" if end.error else "ended"
    times = f"{noted.killed_in_row} runs were " if begun is not None and noted.killed_in_row > 1 else ""
    return StreamState(state, f"{moment(end.at_ms)}: {times}{end.text}", noted)


COMMANDS = (
    Command(
        "status",
        "",
        "the state of a stream, and how its runs have ended; exit code 1 if they fail repeatedly",
        add_checkpoint,
        run_status,
    ),
)
