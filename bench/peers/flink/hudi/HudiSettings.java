import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** The settings of Flink and Hudi. */
final class HudiSettings {
  private HudiSettings() {}

  /** State in RocksDB. */
  static Map<String, String> flink(Path work) {
    return Map.of(
        "state.backend.type", "rocksdb",
        "state.backend.incremental", "true",
        "state.backend.rocksdb.localdir", work.resolve("rocksdb").toString());
  }

  /** The state index over all partitions, loaded from the table; every checkpoint is a commit, and there is no compaction. */
  static Map<String, String> hudi(Path table, String tableType, Map<String, String> more) {
    String tasks = String.valueOf(PeerJob.PARALLELISM);
    Map<String, String> found = new LinkedHashMap<>();
    found.put("path", table.toUri().toString().replaceAll("/$", ""));
    found.put("table.type", tableType);
    found.put("write.operation", "upsert");
    found.put("precombine.field", "ts");
    found.put("hoodie.datasource.write.recordkey.field", "id");
    found.put("index.type", "FLINK_STATE");
    found.put("index.global.enabled", "true");
    found.put("index.bootstrap.enabled", "true");
    found.put("write.tasks", tasks);
    found.put("write.bucket_assign.tasks", tasks);
    found.put("write.index_bootstrap.tasks", tasks);
    found.put("compaction.async.enabled", "false");
    found.put("compaction.schedule.enabled", "false");
    found.put("clean.retain_commits", "1000");
    found.put("archive.min_commits", "1010");
    found.put("archive.max_commits", "1020");
    found.put("metadata.enabled", "false");
    found.putAll(more);
    return found;
  }
}
