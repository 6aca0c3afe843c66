"""Where bad records go beside the quarantine: a Hudi table or a Kafka topic of their own."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.streaming.options.resolve import Problem, Resolved

ENABLE, PATH, NAME = "hoodie.errortable.enable", "hoodie.errortable.base.path", "hoodie.errortable.target.table.name"
STRATEGY, TOPIC = "hoodie.errortable.write.failure.strategy", "tagstream.errortable.topic"


@dataclass(frozen=True)
class DeadLetterOptions:
    """``base_path`` of the table, ``topic``: None for none. ``may_fail``: the job goes on when they are not taken."""

    base_path: str | None = None
    table_name: str | None = None
    topic: str | None = None
    may_fail: bool = False

    @property
    def enabled(self) -> bool:
        """Whether there are any."""
        return self.base_path is not None or self.topic is not None


def dead_letter_options(r: Resolved, source_class: str, base_path: str) -> DeadLetterOptions:
    """The options; what contradicts is noted in ``r``."""
    if r.flag("--replay-quarantine") and source_class != "kafka":
        text = (
            "--replay-quarantine sends bad records to the topic they came from; for files: tagstream quarantine replay"
        )
        r.problems.append(Problem(text, r.entries.get("--replay-quarantine")))
    path, topic = r.opt_text(PATH), r.opt_text(TOPIC)
    if not r.flag(ENABLE):
        for name in (PATH, TOPIC):
            if name in r.entries:
                r.warnings.append(f"{r.said(name)}: without effect, {ENABLE} is not true")
        return DeadLetterOptions()
    if path is None and topic is None:
        r.problems.append(Problem(f"{r.said(ENABLE)}: give {PATH}, or {TOPIC}", r.entries[ENABLE]))
    if topic is not None and source_class != "kafka":
        text = f"{r.said(TOPIC)}: the broker is that of the source, and this source is no topic; give {PATH}"
        r.problems.append(Problem(text, r.entries[TOPIC]))
    if topic is not None and topic == r.opt_text("hoodie.streamer.source.kafka.topic"):
        text = f"{r.said(TOPIC)}: it is the topic that the job reads; give one of its own"
        r.problems.append(Problem(text, r.entries[TOPIC]))
    if path is not None and path.rstrip("/") == base_path.rstrip("/"):
        r.problems.append(
            Problem(f"{r.said(PATH)}: it is the job's own table; give a folder of its own", r.entries[PATH])
        )
    return DeadLetterOptions(path, r.opt_text(NAME), topic, r.text(STRATEGY) == "LOG_ERROR")
