import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.table.data.RowData;
import org.apache.hudi.util.HoodiePipeline;

/** Hudi's Flink writer with its state index. */
public final class HudiJob extends PeerJob {
  private HudiJob(JsonNode order) {
    super(order);
  }

  public static void main(String[] args) throws Exception {
    new HudiJob(JSON.readTree(Files.readString(Path.of(args[0])))).run();
  }

  @Override
  Map<String, String> settings(Path work) {
    return HudiSettings.flink(work);
  }

  @Override
  void sink(DataStream<RowData> rows, JsonRows json) {
    HoodiePipeline.Builder pipeline = HoodiePipeline.builder(order.get("name").asText());
    for (String column : json.sqlColumns()) {
      pipeline.column(column);
    }
    pipeline.pk("id").partition("part").options(HudiSettings.hudi(table, order.get("table_type").asText(), options()));
    pipeline.sink(rows, false);
  }

  @Override
  JsonRows rows(List<String> columns, List<String> types) {
    return order.path("format").asText("json").equals("debezium-json")
        ? new DebeziumRows(columns, types) : super.rows(columns, types);
  }

  @Override
  int commits() throws IOException {
    // On merge-on-read the commit of a compaction does not belong to a batch.
    String ending = order.get("table_type").asText().equals("MERGE_ON_READ") ? ".deltacommit" : ".commit";
    try (Stream<Path> files = Files.list(table.resolve(".hoodie"))) {
      return (int) files.map(file -> file.getFileName().toString())
          .filter(name -> !name.startsWith(".") && name.endsWith(ending)).count();
    }
  }
}
