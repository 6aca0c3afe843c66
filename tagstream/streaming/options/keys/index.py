"""Keys of the indexes that this version reads and ignores."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind, Status

_SPARK = "Spark keeps the batch's records in memory and on disk while they are tagged"
_ZOOKEEPER = (
    "Hudi's own writers find HBase by this key; this writer uses the Thrift server (tagstream.hbase.thrift.host)"
)


def _ignored(name: str, reason: str, section: str = "Pull-type indexes") -> ConfigKey:
    return ConfigKey(name, Kind.STRING, reason, section=section, status=Status.IGNORED, reason=reason)


INDEX_IGNORED = (
    *(
        _ignored(name, _SPARK)
        for name in (
            "hoodie.bloom.index.use.caching",
            "hoodie.bloom.index.input.storage.level",
            "hoodie.simple.index.use.caching",
            "hoodie.simple.index.input.storage.level",
        )
    ),
    _ignored("hoodie.global.index.reconcile.parallelism", "moved keys are looked up in the tag step"),
    _ignored("hoodie.bloom.index.fileid.key.sorting.enable", "keys are always sorted"),
    *(
        _ignored(f"hoodie.index.hbase.{name}", _ZOOKEEPER, "HBASE index")
        for name in ("zkquorum", "zkport", "zknode.path", "zkpath.qps_root")
    ),
)
