import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.flink.streaming.api.functions.source.RichParallelSourceFunction;
import org.apache.flink.table.data.RowData;

/**
 * Files of JSON lines as rows, one file per batch, each released by the driver. A record goes to the subtask of its key's
 * hash, as if it came from one partition of a topic. So the events of a key stay in order.
 */
final class GatedSource extends RichParallelSourceFunction<RowData> {
  // The driver and the subtasks are threads of one JVM.
  private static final Object GATE = new Object();
  private static int released = -1;
  private static AtomicIntegerArray emitted = new AtomicIntegerArray(0);

  private final String[] files;
  private final JsonRows rows;
  private volatile boolean running = true;

  GatedSource(String[] files, JsonRows rows) {
    this.files = files;
    this.rows = rows;
    emitted = new AtomicIntegerArray(files.length);
  }

  /** Release the batch. */
  static void release(int batch) {
    synchronized (GATE) {
      released = batch;
      GATE.notifyAll();
    }
  }

  /** Number of subtasks that have emitted the whole batch. */
  static int subtasksDone(int batch) {
    return emitted.get(batch);
  }

  @Override
  public void run(SourceContext<RowData> out) throws Exception {
    int me = getRuntimeContext().getIndexOfThisSubtask();
    int all = getRuntimeContext().getNumberOfParallelSubtasks();
    for (int batch = 0; waitFor(batch); batch++) {
      try (BufferedReader lines = Files.newBufferedReader(Path.of(files[batch]), StandardCharsets.US_ASCII)) {
        String line;
        while (running && (line = lines.readLine()) != null) {
          if (rows.subtask(line, all) == me) {
            RowData row = rows.parse(line);
            synchronized (out.getCheckpointLock()) {
              out.collect(row);
            }
          }
        }
      }
      emitted.incrementAndGet(batch);
    }
  }

  /** True when the batch may be emitted, false when the job ends. */
  private boolean waitFor(int batch) throws InterruptedException {
    synchronized (GATE) {
      while (running && (batch >= files.length || released < batch)) {
        GATE.wait(1000);
      }
    }
    return running;
  }

  @Override
  public void cancel() {
    running = false;
    synchronized (GATE) {
      GATE.notifyAll();
    }
  }
}
