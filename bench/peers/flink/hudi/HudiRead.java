import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Reads the snapshots of Hudi tables by Flink's SQL. The order is a JSON file with `columns`, their SQL `types`, `key`, and
 * `tables` of `path` and `type`. Each table gives one line with ANSWER and its `rows`, or its `error`.
 */
public final class HudiRead {
  private HudiRead() {}

  public static void main(String[] args) throws Exception {
    JsonNode order = PeerJob.JSON.readTree(Files.readString(Path.of(args[0])));
    TableEnvironment sql = TableEnvironment.create(EnvironmentSettings.inBatchMode());
    sql.getConfig().set("parallelism.default", "1");
    List<String> columns = PeerJob.texts(order.get("columns"));
    List<String> types = PeerJob.texts(order.get("types"));
    int number = 0;
    for (JsonNode table : order.get("tables")) {
      String answer;
      try {
        answer = "{\"rows\":" + PeerJob.JSON.writeValueAsString(rows(sql, "t" + number++, table, order, columns, types)) + "}";
      } catch (Exception | Error e) {
        Throwable cause = e;
        while (cause.getCause() != null) {
          cause = cause.getCause();
        }
        answer = "{\"error\":" + PeerJob.JSON.writeValueAsString(cause.getClass().getSimpleName() + ": " + cause.getMessage()) + "}";
      }
      System.out.println("ANSWER " + answer);
    }
    System.out.flush();
    Runtime.getRuntime().halt(0); // threads of an embedded cluster may not end by themselves
  }

  private static List<List<Object>> rows(
      TableEnvironment sql, String name, JsonNode table, JsonNode order, List<String> columns, List<String> types)
      throws Exception {
    List<String> fields = new ArrayList<>();
    for (int i = 0; i < columns.size(); i++) {
      fields.add("`" + columns.get(i) + "` " + types.get(i));
    }
    sql.executeSql("CREATE TABLE " + name + " (" + String.join(", ", fields) + ", PRIMARY KEY (`" + order.get("key").asText()
        + "`) NOT ENFORCED) PARTITIONED BY (`" + order.get("partition").asText() + "`) WITH ('connector' = 'hudi', 'path' = '"
        + table.get("path").asText() + "', 'table.type' = '" + table.get("type").asText() + "')");
    List<List<Object>> found = new ArrayList<>();
    try (CloseableIterator<Row> result = sql.executeSql("SELECT * FROM " + name).collect()) {
      while (result.hasNext()) {
        Row row = result.next();
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < row.getArity(); i++) {
          values.add(row.getField(i));
        }
        found.add(values);
      }
    }
    return found;
  }
}
