"""Keys of the format of records, and of what Debezium's events mean."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_FORMATS = "Formats"

FORMAT_KEYS = (
    ConfigKey(
        "tagstream.source.format",
        Kind.CHOICE,
        "What records are written in (docs/change-streams.md): rows as JSON (`json`), or Debezium's change events as JSON, "
        "with their schema or without (`debezium-json`).",
        default="json",
        values={"JSON": "json", "DEBEZIUM-JSON": "debezium-json"},
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.order",
        Kind.CHOICE,
        "What orders a row's events where the table has no ordering field: `source.lsn` of PostgreSQL (`lsn`), MySQL's "
        "binlog file, position and row (`binlog`), or their arrival (`arrival`, as with "
        "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING; after a failover positions may begin lower). The state index "
        "alone keeps such an order; with other indexes events count as they arrive. A checkpoint keeps to its first choice.",
        default_note="lsn; binlog with MysqlDebeziumSource",
        values={"LSN": "lsn", "BINLOG": "binlog", "ARRIVAL": "arrival"},
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.truncate",
        Kind.CHOICE,
        "What a TRUNCATE of the source's table does, which connectors send only when told to: the event is bad and ends the "
        "job (`fail`), or the table keeps its rows (`ignore`).",
        default="fail",
        values={"FAIL": "fail", "IGNORE": "ignore"},
        refused_values={
            "DELETE": "this version does not empty the table; use fail or ignore",
        },
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.unavailable.value",
        Kind.STRING,
        "The text that stands for a value that was not sent since it did not change: the connector's "
        "`unavailable.value.placeholder`. The row keeps the value that it has.",
        default="__debezium_unavailable_value",
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.unavailable.lost",
        Kind.CHOICE,
        "What becomes of a value that was not sent when the row that had it is gone: a row whose key was changed, and whose "
        "delete under the old key was read in an earlier batch. The job ends (`fail`), or the value is null (`null`).",
        default="fail",
        values={"FAIL": "fail", "NULL": "null"},
        section=_FORMATS,
    ),
)
