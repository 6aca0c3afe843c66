import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;

/** What Flink and Hudi are told. */
final class Settings {
  static final int PARALLELISM = 2;
  static final int MAX_PARALLELISM = 128;

  private Settings() {}

  /** State in RocksDB, incremental checkpoints on the local disk, no restart after a failure. */
  static Configuration flink(Path work) {
    Configuration conf = new Configuration();
    conf.setString("state.backend.type", "rocksdb");
    conf.setString("state.backend.incremental", "true");
    conf.setString("state.backend.rocksdb.localdir", work.resolve("rocksdb").toString());
    conf.setString("state.checkpoint-storage", "filesystem");
    conf.setString("state.checkpoints.dir", work.resolve("checkpoints").toUri().toString());
    conf.setString("execution.checkpointing.timeout", "30min");
    conf.setString("io.tmp.dirs", work.resolve("tmp").toString());
    conf.setString("taskmanager.memory.managed.size", "1g");
    conf.setString("taskmanager.memory.network.min", "128m");
    conf.setString("taskmanager.memory.network.max", "128m");
    conf.setString("taskmanager.numberOfTaskSlots", String.valueOf(PARALLELISM));
    conf.setString("restart-strategy.type", "none");
    conf.setString("rest.port", "0");
    conf.setString("rest.bind-port", "0");
    return conf;
  }

  /** The state index over all partitions, loaded from the table; every checkpoint a commit, nothing compacted. */
  static Map<String, String> hudi(Path table, String tableType, Map<String, String> more) {
    String tasks = String.valueOf(PARALLELISM);
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
