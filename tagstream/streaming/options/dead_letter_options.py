"""Bad records that are written, in addition to the quarantine, to a separate Hudi table or Kafka topic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import eq

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.option_fields import derived, option, read

ERROR_ENABLE, ERROR_PATH, ERROR_NAME = (
    "hoodie.errortable.enable",
    "hoodie.errortable.base.path",
    "hoodie.errortable.target.table.name",
)
ERROR_STRATEGY, ERROR_TOPIC = "hoodie.errortable.write.failure.strategy", "tagstream.errortable.topic"


@dataclass(frozen=True)
class DeadLetterOptions:
    """``base_path`` of the table, ``topic``: None for none. ``may_fail``: the job continues when they cannot be written."""

    base_path: str | None = derived(
        ConfigKey(
            "hoodie.errortable.enable",
            Kind.BOOL,
            "Also write bad records to an error table or a topic after the commit of their batch, and "
            "continue as with `--commit-on-errors` (docs/guide/records.md, Dead letters).",
            default=False,
        ),
        ConfigKey(
            "hoodie.errortable.base.path",
            Kind.PATH,
            "Folder of the error table, which is created with the first bad record.",
            default_note="none",
        ),
        default=None,
    )
    table_name: str | None = option(
        "hoodie.errortable.target.table.name",
        Kind.STRING,
        "Name of the error table.",
        default_note="the table's name with `_errors`",
    )
    may_fail: bool = option(
        "hoodie.errortable.write.failure.strategy",
        Kind.CHOICE,
        "What happens when bad records cannot be written to the error table or topic: the job ends and "
        "the next start writes them (`ROLLBACK_COMMIT`; the batch itself is kept), or the job "
        "continues and tries again after the next batch (`LOG_ERROR`).",
        default="ROLLBACK_COMMIT",
        values={"ROLLBACK_COMMIT": "ROLLBACK_COMMIT", "LOG_ERROR": "LOG_ERROR"},
        convert=partial(eq, "LOG_ERROR"),
    )
    topic: str | None = option(
        "tagstream.errortable.topic",
        Kind.STRING,
        "Kafka topic for bad records, on the source's broker. The message has the original key, value "
        "and headers, and headers `tagstream.*` with its origin and the error.",
        default_note="none",
    )

    @property
    def enabled(self) -> bool:
        """Whether they are written."""
        return self.base_path is not None or self.topic is not None


def dead_letter_options(r: Resolved, source_class: str, base_path: str) -> DeadLetterOptions:
    """The options; contradictions are noted in ``r``."""
    if r.flag("--replay-quarantine") and source_class != "kafka":
        text = "--replay-quarantine sends bad records to their topic; for files use tagstream quarantine replay"
        r.problems.append(Problem(text, r.entries.get("--replay-quarantine")))
    path, topic = r.opt_text(ERROR_PATH), r.opt_text(ERROR_TOPIC)
    if not r.flag(ERROR_ENABLE):
        for name in (ERROR_PATH, ERROR_TOPIC):
            if name in r.entries:
                r.warnings.append(f"{r.said(name)}: without effect, {ERROR_ENABLE} is not true")
        return DeadLetterOptions()
    if path is None and topic is None:
        r.problems.append(
            Problem(f"{r.said(ERROR_ENABLE)}: set {ERROR_PATH}, or {ERROR_TOPIC}", r.entries[ERROR_ENABLE])
        )
    if topic is not None and source_class != "kafka":
        text = (
            f"{r.said(ERROR_TOPIC)}: the broker is that of the source, but this source is not a topic; set {ERROR_PATH}"
        )
        r.problems.append(Problem(text, r.entries[ERROR_TOPIC]))
    if topic is not None and topic == r.opt_text("hoodie.streamer.source.kafka.topic"):
        text = f"{r.said(ERROR_TOPIC)}: the job reads this topic; use another one"
        r.problems.append(Problem(text, r.entries[ERROR_TOPIC]))
    if path is not None and path.rstrip("/") == base_path.rstrip("/"):
        r.problems.append(
            Problem(f"{r.said(ERROR_PATH)}: this is the job's own table; use another folder", r.entries[ERROR_PATH])
        )
    return read(DeadLetterOptions, r, base_path=path)
