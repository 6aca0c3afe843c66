"""What a write task looks at in the table: the partitions it writes to, each once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tagstream.streaming.batch.write import slices_of
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tests.table.stepping import Stepping
from tests.table.writer import Writer, row


def test_each_partition_is_listed_once(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ, groups=8)
    for version in (1, 2):
        writer.write([row(n, f"p{n % 2}", version) for n in range(40)])
    groups = sorted(set(writer.where.values()))
    looks: list[tuple[str, str]] = []
    storage = Stepping(writer.table.storage, lambda name, rel: looks.append((name, rel)))
    timeline = writer.table.timeline()
    view = replace(writer.table, storage=storage).view(timeline)
    found = slices_of(view, [*groups, ("p1", "new-0"), ("p9", "new-0")])
    assert looks == [("list", "p0"), ("list", "p1"), ("list", "p9")]
    following = 2 if writer.table.config.names_logs_by_commit else 3  # then each commit counts its own
    assert {key: (len(s.log_files), s.next_log_version) for key, s in found.items()} == dict.fromkeys(
        groups, (2, following)
    )
    plain = writer.table.view(timeline)
    assert found == {group: plain.latest_slice(*group) for group in groups}
