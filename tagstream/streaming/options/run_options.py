"""Options of a run itself: its checkpoint, its end, bad records, its status page, Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import eq

from tagstream.table.config import ConfigKey, Kind
from tagstream.table.option_fields import derived, option


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """``quarantine_days``: how long bad records are kept; 0: without end. ``checkpoint_identifier``: the name of the
    stream.

    ``spark_conf``: keys of the Spark session.
    """

    checkpoint_dir: str = derived(
        ConfigKey(
            "--checkpoint-dir",
            Kind.PATH,
            "Spark's checkpoint location, and the folder of the index (profiles, manifests, deltas, "
            "snapshots and quarantine under `tagstream/`). Never use it for two jobs.",
            flag="--checkpoint-dir",
            default_note="required",
        ),
    )
    continuous: bool = option(
        "--continuous",
        Kind.BOOL,
        "Keep running. Without it the job reads the data that exists now and ends.",
        default=False,
        flag="--continuous",
    )
    bootstrap_only: bool = option(
        "--bootstrap-only",
        Kind.BOOL,
        "Load the index from the table and end. Only the table and the checkpoint are needed: the "
        "other options are in the table's properties. A stream started later on this checkpoint uses "
        "this index.",
        default=False,
        flag="--bootstrap-only",
    )
    dry_run: bool = option(
        "--dry-run",
        Kind.BOOL,
        "Show what a start would do (which index it uses; what loading an index would read and leave "
        "out) and end. Nothing is changed and Spark is not started.",
        default=False,
        flag="--dry-run",
    )
    task_files: bool = option(
        "tagstream.task.files",
        Kind.BOOL,
        "With a local Spark master: rows stay in files of the tasks below `index.local.dir` until the next step has read "
        "them, and only their places go through Spark's shuffle.",
        default=True,
    )
    min_sync_interval_seconds: int = option(
        "--min-sync-interval-seconds",
        Kind.INT,
        "Least number of seconds from the start of one batch to the start of the next.",
        default=0,
        minimum=0,
        flag="--min-sync-interval-seconds",
    )
    commit_on_errors: bool = option(
        "--commit-on-errors",
        Kind.BOOL,
        "Continue when records are bad. They are quarantined and counted in any case. Without it the "
        "job fails after more than `--max-bad-records` bad records.",
        default=False,
        flag="--commit-on-errors",
    )
    replay_quarantine: bool = option(
        "--replay-quarantine",
        Kind.BOOL,
        "Before the first batch, send the bad records of finished batches again to their topic. Use it "
        "when the cause is corrected. Each record is sent once. They arrive after newer records, so an "
        "order is needed: an ordering field, or a Debezium log's positions with the state index. For "
        "files use `tagstream quarantine replay`.",
        default=False,
        flag="--replay-quarantine",
    )
    max_bad_records: int = option(
        "--max-bad-records",
        Kind.INT,
        "Number of bad records that a run may quarantine before it fails. It has no effect with `--commit-on-errors`.",
        default=0,
        minimum=0,
        flag="--max-bad-records",
    )
    quarantine_days: float = option(
        "tagstream.quarantine.retention.days",
        Kind.FLOAT,
        "Bad records are removed from the quarantine after this number of days, if their batch is "
        "committed. 0: they are kept (docs/guide/records.md, Quarantine).",
        default=0.0,
        minimum=0,
    )
    log_all_options: bool = option(
        "tagstream.log.options",
        Kind.CHOICE,
        "Which options are logged at the start: those that differ from their defaults (`given`), or `all`.",
        default="given",
        values={"GIVEN": "given", "ALL": "all"},
        convert=partial(eq, "all"),
    )
    spark_master: str | None = option(
        "--spark-master",
        Kind.STRING,
        "Spark master to run on.",
        default_note="that of spark-submit, else `local[*,4]`",
        flag="--spark-master",
    )
    checkpoint_identifier: str | None = option(
        "hoodie.datasource.write.streaming.checkpoint.identifier",
        Kind.STRING,
        "Name of this stream in the table's commits. It is fixed when the checkpoint is made.",
        default_note="the Kafka topic, or the source folder",
    )
    shuffle_partitions: int | None = option(
        "spark.sql.shuffle.partitions",
        Kind.INT,
        "Shuffle partitions of the stateful step. The number is fixed when the checkpoint is made. "
        "Other `spark.*` keys are passed to the Spark session unchanged.",
        default_note="the number of the Spark master's cores",
        minimum=1,
        maximum=100_000,
    )
    spark_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StatusOptions:
    """The status page. ``port`` None: no server runs. ``stuck_after`` and ``behind_after``: seconds."""

    port: int | None = derived(
        ConfigKey(
            "--status-port",
            Kind.INT,
            "Serve a status page, `/status.json`, `/healthz` and Prometheus metrics at `/metrics` on this port "
            "of `--status-host`; 0 picks a free one, which the log names. See docs/operations/monitoring.md.",
            default_note="no server runs",
            minimum=0,
            maximum=65535,
            flag="--status-port",
        ),
        ConfigKey(
            "--metrics-port",
            Kind.INT,
            "The older name of `--status-port`.",
            default_note="`--status-port`",
            minimum=0,
            maximum=65535,
            flag="--metrics-port",
        ),
        default=None,
    )
    host: str = derived(
        ConfigKey(
            "--status-host",
            Kind.STRING,
            "Address of the status server. Everybody who can reach it can read the pages without a login: "
            "use `0.0.0.0` (every interface) only in a private network.",
            default="127.0.0.1",
            flag="--status-host",
        ),
        ConfigKey(
            "--metrics-host",
            Kind.STRING,
            "The older name of `--status-host`.",
            default_note="`--status-host`",
            flag="--metrics-host",
        ),
        default="127.0.0.1",
    )
    stuck_after: float = option(
        "tagstream.status.stuck.after.seconds",
        Kind.FLOAT,
        "A job whose batch takes longer than this is shown as stuck, and `/healthz` answers 503.",
        default=900.0,
        minimum=1,
    )
    behind_after: float = option(
        "tagstream.status.behind.after.seconds",
        Kind.FLOAT,
        "A job is shown as behind when the waiting records would take longer than this at the rate of "
        "its last batches.",
        default=600.0,
        minimum=1,
    )
