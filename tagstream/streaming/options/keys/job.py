"""Keys of the job itself: command line, checkpoint, bad records, progress."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_JOB = "Job"

JOB_KEYS = (
    ConfigKey(
        "--checkpoint-dir",
        Kind.PATH,
        "Spark's checkpoint location and the home of the index "
        "(profiles, manifests, deltas, snapshots, quarantine under `tagstream/`). Never share it between two jobs.",
        flag="--checkpoint-dir",
        default_note="required",
        section=_JOB,
    ),
    ConfigKey(
        "--continuous",
        Kind.BOOL,
        "Keep running. Without it the job takes what there is now and ends.",
        default=False,
        flag="--continuous",
        section=_JOB,
    ),
    ConfigKey(
        "--bootstrap-only",
        Kind.BOOL,
        "Load the index from the table and end. Only the table and the checkpoint are needed: the rest is in the table's "
        "properties. The stream started afterwards on this checkpoint goes on with that index.",
        default=False,
        flag="--bootstrap-only",
        section=_JOB,
    ),
    ConfigKey(
        "--dry-run",
        Kind.BOOL,
        "Say what a start would do (which index it works on; what loading one would read, and what it would leave out) "
        "and end. Nothing is changed and Spark is not started.",
        default=False,
        flag="--dry-run",
        section=_JOB,
    ),
    ConfigKey(
        "--min-sync-interval-seconds",
        Kind.INT,
        "Least time from the start of one batch to the start of the next.",
        default=0,
        minimum=0,
        flag="--min-sync-interval-seconds",
        section=_JOB,
    ),
    ConfigKey(
        "--source-limit",
        Kind.INT,
        "Most a batch takes: events for Kafka (see also `tagstream.kafka.max.batch.bytes`); bytes for files, cut at file "
        "boundaries, one file at least.",
        default_note="1,000,000 events for Kafka, 512 MiB for files",
        minimum=1,
        flag="--source-limit",
        section=_JOB,
    ),
    ConfigKey(
        "--commit-on-errors",
        Kind.BOOL,
        "Go on when records are bad. They are quarantined and counted either way; "
        "without it the job fails once more than `--max-bad-records` were found.",
        default=False,
        flag="--commit-on-errors",
        section=_JOB,
    ),
    ConfigKey(
        "--replay-quarantine",
        Kind.BOOL,
        "Send the bad records of batches that are done to the topic they came from again, before the first batch: when what "
        "was wrong with them is corrected. Each is sent once. They come behind newer ones, so an order is needed: an "
        "ordering field, or a Debezium log's positions with the state index. For files: `tagstream quarantine replay`.",
        default=False,
        flag="--replay-quarantine",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.errortable.enable",
        Kind.BOOL,
        "Put bad records into a table or a topic of their own as well, once their batch is committed, and go on as with "
        "`--commit-on-errors` (docs/guide/records.md, Dead letters).",
        default=False,
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.errortable.base.path",
        Kind.PATH,
        "Folder of the error table, which is made when the first bad record comes.",
        default_note="none",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.errortable.target.table.name",
        Kind.STRING,
        "Name of the error table.",
        default_note="the table's with `_errors` behind it",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.errortable.write.failure.strategy",
        Kind.CHOICE,
        "What happens when bad records are not taken: the job ends and the next start delivers them (`ROLLBACK_COMMIT`; the "
        "batch itself stays), or it goes on and tries after the next batch (`LOG_ERROR`).",
        default="ROLLBACK_COMMIT",
        values={"ROLLBACK_COMMIT": "ROLLBACK_COMMIT", "LOG_ERROR": "LOG_ERROR"},
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.errortable.topic",
        Kind.STRING,
        "Kafka topic for bad records, on the source's broker: key, value and headers as they came, and headers "
        "`tagstream.*` that say where from and what was wrong.",
        default_note="none",
        section=_JOB,
    ),
    ConfigKey(
        "--max-bad-records",
        Kind.INT,
        "Bad records a run may quarantine before it fails. Without effect with `--commit-on-errors`.",
        default=0,
        minimum=0,
        flag="--max-bad-records",
        section=_JOB,
    ),
    ConfigKey(
        "--status-port",
        Kind.INT,
        "Serve a status page, `/status.json`, `/healthz` and Prometheus metrics at `/metrics` on this port of "
        "`--status-host`; 0 picks a free one, which the log names. See docs/operations/monitoring.md.",
        default_note="nothing is served",
        minimum=0,
        maximum=65535,
        flag="--status-port",
        section=_JOB,
    ),
    ConfigKey(
        "--status-host",
        Kind.STRING,
        "Address that they are served on. Who reaches it can read them without a login: `0.0.0.0` (every interface) only in "
        "a network of your own.",
        default="127.0.0.1",
        flag="--status-host",
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.quarantine.retention.days",
        Kind.FLOAT,
        "Bad records in the quarantine are removed when they are older than so many days, if their batch is committed. 0: "
        "they are kept (docs/guide/records.md, Quarantine).",
        default=0.0,
        minimum=0,
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.log.options",
        Kind.CHOICE,
        "Which options are logged at the start: those that are not at their defaults (`given`), or `all`.",
        default="given",
        values={"GIVEN": "given", "ALL": "all"},
        section=_JOB,
    ),
    ConfigKey(
        "--metrics-port",
        Kind.INT,
        "The older name of `--status-port`.",
        default_note="`--status-port`",
        minimum=0,
        maximum=65535,
        flag="--metrics-port",
        section=_JOB,
    ),
    ConfigKey(
        "--metrics-host",
        Kind.STRING,
        "The older name of `--status-host`.",
        default_note="`--status-host`",
        flag="--metrics-host",
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.status.stuck.after.seconds",
        Kind.FLOAT,
        "A job that is longer than this in one batch is shown as stuck, and `/healthz` answers 503.",
        default=900.0,
        minimum=1,
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.status.behind.after.seconds",
        Kind.FLOAT,
        "A job is shown as behind when the records that wait take longer than this at the rate of its last batches.",
        default=600.0,
        minimum=1,
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.unsupported",
        Kind.CHOICE,
        "What becomes of keys that ask for what this job does not do, and without which the rows are the same (table "
        "services, catalogue sync, metrics reporters): `warn` lists them at the start, `ignore` passes over them, `fail` "
        "ends the job. HoodieStreamer's files name such keys as a matter of course, so the default is `warn`. Keys by which "
        "rows or files would differ end the job in any case.",
        default="warn",
        section=_JOB,
        values={"FAIL": "fail", "WARN": "warn", "IGNORE": "ignore"},
    ),
    ConfigKey(
        "--spark-master",
        Kind.STRING,
        "Spark master to run on.",
        default_note="what spark-submit gives, else `local[*,4]`",
        flag="--spark-master",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.datasource.write.streaming.checkpoint.identifier",
        Kind.STRING,
        "Name of this stream in the table's commits; fixed when the checkpoint is made.",
        default_note="the Kafka topic, or the source folder",
        section=_JOB,
    ),
    ConfigKey(
        "spark.sql.shuffle.partitions",
        Kind.INT,
        "Shuffle partitions of the stateful step; fixed when the checkpoint is made. Other `spark.*` keys go to the "
        "Spark session as they are.",
        default_note="as many as the Spark master has cores",
        minimum=1,
        maximum=100_000,
        section=_JOB,
    ),
)
