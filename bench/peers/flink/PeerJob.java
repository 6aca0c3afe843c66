import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;

/**
 * A writer on Flink in an embedded cluster. The order is a JSON file. Events are appended to the order's events file, one
 * JSON object per line. A batch is released, then a checkpoint is triggered, which makes the writer commit. The batch's
 * time ends when readers can see the commit.
 */
abstract class PeerJob {
  static final int PARALLELISM = 2;
  static final ObjectMapper JSON = new ObjectMapper();
  private static final int MAX_PARALLELISM = 128;
  private static final long NEVER_MS = 24 * 3600 * 1000L;
  private static final long POLL_MS = 2;

  final JsonNode order;
  final Path table;
  private final Path events;

  PeerJob(JsonNode order) {
    this.order = order;
    this.table = Path.of(order.get("table").asText());
    this.events = Path.of(order.get("events").asText());
  }

  /** The settings of the engine, in addition to those of every job here. */
  abstract Map<String, String> settings(Path work);

  /** Connects the rows to the engine's writer. */
  abstract void sink(DataStream<RowData> rows, JsonRows json) throws Exception;

  /** Converts lines to rows; the order's `format` is their format. */
  JsonRows rows(List<String> columns, List<String> types) {
    if (!order.path("format").asText("json").equals("json")) {
      throw new IllegalArgumentException("this program does not read " + order.get("format"));
    }
    return new JsonRows(columns, types);
  }

  /** Number of commits with rows in the table. */
  abstract int commits() throws IOException;

  /** Run all batches, then end the process: the cluster's threads may not end by themselves. */
  final void run() throws Exception {
    Path work = Path.of(order.get("work").asText());
    Files.createDirectories(work.resolve("tmp"));
    Configuration conf = configuration(work);
    MiniClusterConfiguration shape = new MiniClusterConfiguration.Builder()
        .setConfiguration(conf).setNumTaskManagers(1).setNumSlotsPerTaskManager(PARALLELISM).build();
    List<String> files = texts(order.get("files"));
    try (MiniCluster cluster = new MiniCluster(shape)) {
      cluster.start();
      JobGraph graph = graph(conf, files);
      JobID job = graph.getJobID();
      long submitted = System.nanoTime();
      cluster.submitJob(graph).get();
      waitUntilRunning(cluster, job);
      double running = seconds(submitted);
      cluster.triggerCheckpoint(job).get(); // an empty one: every index record has reached the state
      tell("ready", Map.of("bootstrap_seconds", seconds(submitted), "running_seconds", running));
      for (int batch = 0; batch < files.size(); batch++) {
        batch(cluster, job, batch);
      }
      cluster.cancelJob(job).get();
    }
    tell("end", Map.of());
    System.exit(0);
  }

  /** Incremental checkpoints on the local disk, no restart after a failure. */
  private Configuration configuration(Path work) {
    Configuration conf = new Configuration();
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
    settings(work).forEach(conf::setString);
    return conf;
  }

  private JobGraph graph(Configuration conf, List<String> files) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
    env.setParallelism(PARALLELISM);
    env.setMaxParallelism(MAX_PARALLELISM);
    env.enableCheckpointing(NEVER_MS, CheckpointingMode.EXACTLY_ONCE); // the driver triggers them
    JsonRows json = rows(texts(order.get("columns")), texts(order.get("types")));
    DataStream<RowData> rows = env.addSource(
        new GatedSource(files.toArray(new String[0]), json), "files", InternalTypeInfo.of(json.rowType()));
    sink(rows, json);
    return env.getStreamGraph().getJobGraph();
  }

  private void batch(MiniCluster cluster, JobID job, int batch) throws Exception {
    int commits = commits() + 1;
    long released = System.nanoTime();
    GatedSource.release(batch);
    while (GatedSource.subtasksDone(batch) < PARALLELISM) {
      pause(cluster, job);
    }
    double emitted = seconds(released);
    cluster.triggerCheckpoint(job).get();
    double checkpointed = seconds(released);
    while (commits() < commits) {
      pause(cluster, job);
    }
    double committed = seconds(released);
    Map<String, Double> phases = Map.of(
        "emit", emitted, "checkpoint", checkpointed - emitted, "commit", committed - checkpointed);
    double load = Double.parseDouble(Files.readString(Path.of("/proc/loadavg")).split(" ")[0]);
    tell("batch", Map.of("batch", batch, "seconds", committed, "phases", phases, "load1", load));
  }

  /** The index is loaded while its operator is initialized. */
  private static void waitUntilRunning(MiniCluster cluster, JobID job) throws Exception {
    while (true) {
      boolean all = cluster.getJobStatus(job).get() == JobStatus.RUNNING;
      for (AccessExecutionVertex task : cluster.getExecutionGraph(job).get().getAllExecutionVertices()) {
        all &= task.getExecutionState() == ExecutionState.RUNNING;
      }
      if (all) {
        return;
      }
      pause(cluster, job);
    }
  }

  /** Wait a little, where no call waits for an event. A job that has ended is an error with its reason. */
  private static void pause(MiniCluster cluster, JobID job) throws Exception {
    if (cluster.getJobStatus(job).get().isTerminalState()) {
      cluster.requestJobResult(job).get().toJobExecutionResult(PeerJob.class.getClassLoader());
      throw new IllegalStateException("the job ended before its last batch");
    }
    Thread.sleep(POLL_MS);
  }

  /** The writer's options in the order. */
  final Map<String, String> options() {
    Map<String, String> found = new LinkedHashMap<>();
    order.get("options").fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
    return found;
  }

  private void tell(String event, Map<String, ?> what) throws IOException {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("event", event);
    line.put("at", System.currentTimeMillis() / 1e3);
    line.putAll(what);
    Files.writeString(events, JSON.writeValueAsString(line) + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  private static double seconds(long since) {
    return (System.nanoTime() - since) / 1e9;
  }

  static List<String> texts(JsonNode array) {
    List<String> found = new ArrayList<>();
    array.forEach(each -> found.add(each.asText()));
    return found;
  }
}
