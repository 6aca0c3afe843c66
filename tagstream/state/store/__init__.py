"""One key group's RocksDB: what is in it and how it is coded."""
