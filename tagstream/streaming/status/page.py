"""The status page of a run, made of a snapshot."""

from __future__ import annotations

from tagstream.streaming.page.look import policy, render
from tagstream.streaming.progress.report import KINDS
from tagstream.streaming.status import health
from tagstream.streaming.status.metrics import PHASES, most_waiting
from tagstream.streaming.status.snapshot import Snapshot

_ROOM = "tagstream.streaming.status"
_SCRIPT = "renew.js"
POLICY = policy(_ROOM, _SCRIPT)
_TONE = {
    health.OK: "good", health.STARTING: "good", health.ENDED: "good", health.BEHIND: "warn",
    health.LEAVING_OUT: "warn",
    health.STUCK: "bad", health.RESTARTING: "bad", health.BAD_RECORDS: "bad",
}  # fmt: skip
_PHASE_TEXT = {
    "check": "look at timeline and lease", "prepare": "pin profile, begin instant", "tasks": "read, tag and write",
    "commit": "publish and complete", "services": "compact, clean, archive",
}  # fmt: skip
_KIND_TEXT = {
    "inserts": "inserts", "updates": "updates", "deletes": "deletes", "moves": "moves to another partition",
    "late": "late", "superseded": "superseded in their batch", "unknown_deletes": "deletes of unknown keys",
    "skipped": "of no row",
    "quarantined": "quarantined",
}  # fmt: skip
GROUPS_SHOWN, COMMITS_SHOWN, PARTITIONS_SHOWN = 12, 12, 12


def status_page(s: Snapshot) -> bytes:
    """The page in UTF-8."""
    records = max(1, s.counts.get("records", 0))
    last = s.recent[-1] if s.recent else None
    largest = sorted(s.groups, key=lambda g: (-g.keys, g.label))
    waiting = most_waiting(s, PARTITIONS_SHOWN)
    most_records = max((part.records for part in waiting), default=0)
    most = max((g.keys for g in s.groups), default=0)
    return render(
        _ROOM,
        "status.html.j2",
        {
            "s": s,
            "tone": "warn" if s.services_failing and _TONE[s.health.state] == "good" else _TONE[s.health.state],
            "title": health.TITLES[s.health.state],
            "last": last,
            "kinds": [
                (kind, _KIND_TEXT[kind], s.counts.get(kind, 0), s.counts.get(kind, 0) / records) for kind in KINDS
            ],
            "phases": [
                (f"s{n}", phase, _PHASE_TEXT[phase], s.phases.get(phase, 0.0)) for n, phase in enumerate(PHASES)
            ],
            "phase_columns": [[b.phases.get(phase, 0.0) for phase in PHASES] for b in s.recent],
            "rates": [(n, b.records / b.seconds if b.seconds else 0.0) for n, b in enumerate(s.recent)],
            "groups": [(g, g.keys / most if most else 0.0) for g in largest[:GROUPS_SHOWN]],
            "groups_more": len(largest) > GROUPS_SHOWN,
            "waiting": [(part, part.records / most_records if most_records else 0.0) for part in waiting],
            "partitions": s.files.largest[:PARTITIONS_SHOWN] if s.files else (),
            "show_bad": health.show_bad(s.about.checkpoint),
            "commits": s.commits[:COMMITS_SHOWN],
        },
        script=_SCRIPT,
    )
