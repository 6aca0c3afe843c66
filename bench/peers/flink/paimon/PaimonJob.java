import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.table.data.RowData;
import org.apache.paimon.flink.sink.FlinkSinkBuilder;

/** Paimon's Flink writer with upserts across partitions. An order that says {@code create} makes the table first. */
public final class PaimonJob extends PeerJob {
  private long looked;
  private int appends;

  private PaimonJob(JsonNode order) {
    super(order);
  }

  public static void main(String[] args) throws Exception {
    new PaimonJob(JSON.readTree(Files.readString(Path.of(args[0])))).run();
  }

  /** Paimon keeps its index in its own RocksDB and not in Flink's state. */
  @Override
  Map<String, String> settings(Path work) {
    return Map.of("state.backend.type", "hashmap");
  }

  @Override
  void sink(DataStream<RowData> rows, JsonRows json) throws Exception {
    if (order.get("create").asBoolean()) {
      PaimonTable.create(table, texts(order.get("columns")), texts(order.get("types")), options());
    }
    Map<String, String> own = order.get("create").asBoolean() ? Map.of() : options();
    new FlinkSinkBuilder(PaimonTable.open(table, own)).forRowData(rows).parallelism(PARALLELISM).build();
  }

  /** Number of snapshots of the kind APPEND; compactions make other snapshots. */
  @Override
  int commits() throws IOException {
    for (Path next = PaimonTable.snapshot(table, looked + 1); Files.exists(next);
        next = PaimonTable.snapshot(table, looked + 1)) {
      String text = Files.readString(next);
      if (!text.endsWith("}")) {
        break; // still being written
      }
      looked++;
      appends += JSON.readTree(text).get("commitKind").asText().equals("APPEND") ? 1 : 0;
    }
    return appends;
  }
}
