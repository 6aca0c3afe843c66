"""A Hudi table in DuckDB, without Spark or Java: SQL over a filtered scan, and the rows changed since a time."""

import sys

import tagstream

table = tagstream.open_table(sys.argv[1] if len(sys.argv) > 1 else "out/readings")
print(table, *table.schema.names)

# Partitions and files that cannot have such rows are not read.
some = table.scan(
    columns=["device", "room", "number"], filter="room in ('room 0', 'room 1') and number > 0"
).to_duckdb()
print(some.aggregate("room, count(*) as devices, max(number) as newest", "room").order("room"))

writes = [action for action in table.timeline() if action.is_completed and action.is_write]
first = writes[0].completion_time or writes[0].time
print("rows written after the first commit:", table.scan(since=first).to_arrow().num_rows)

health = table.health()
print("healthy" if health.ok else "\n".join(f"{found.what}: {found.remedy}" for found in health.findings))
