"""Keys of the job that no option object has: those of several tables, and how unsupported keys are treated."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_JOB = "Job"

JOB_KEYS = (
    ConfigKey(
        "--config-folder",
        Kind.PATH,
        "Several tables in one job, as in HoodieMultiTableStreamer: the folder with one properties "
        "file per table (docs/guide/dataframes.md#several-tables).",
        default_note="one table",
        flag="--config-folder",
        section=_JOB,
    ),
    ConfigKey(
        "--base-path-prefix",
        Kind.PATH,
        "Several tables in one job: the path of a table is `PREFIX/DATABASE/TABLE`.",
        default_note="one table",
        flag="--base-path-prefix",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.streamer.ingestion.tablesToBeIngested",
        Kind.LIST,
        "Several tables in one job: their names, `DATABASE.TABLE`. If the file of a table is not "
        "`DATABASE_TABLE_config.properties` in the config folder, "
        "`hoodie.streamer.ingestion.DATABASE.TABLE.configFile` names it. In that file "
        "`hoodie.streamer.ingestion.targetBasePath` is the path of the table.",
        default=(),
        section=_JOB,
    ),
    ConfigKey(
        "tagstream.unsupported",
        Kind.CHOICE,
        "What happens with keys for functions that this job does not have and that do not change rows "
        "(table services, catalogue sync, metrics reporters): `warn` lists them at the start, `ignore` "
        "ignores them, `fail` ends the job. HoodieStreamer's files often have such keys, so the "
        "default is `warn`. Keys that would change rows or files always end the job.",
        default="warn",
        section=_JOB,
        values={"FAIL": "fail", "WARN": "warn", "IGNORE": "ignore"},
    ),
)
