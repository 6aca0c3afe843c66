import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.json.debezium.DebeziumJsonDeserializationSchema;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;
import org.apache.flink.util.SimpleUserCodeClassLoader;
import org.apache.flink.util.UserCodeClassLoader;

/** Debezium's envelopes as rows, by Flink's own format debezium-json. The first column of a row is the key. */
final class DebeziumRows extends JsonRows {
  private static final String AFTER = "\"after\":{\"";

  private final String key;
  private transient DeserializationSchema<RowData> format;
  private transient Newest newest;

  DebeziumRows(List<String> names, List<String> types) {
    super(names, types);
    key = AFTER + names.get(0) + "\":\"";
  }

  @Override
  int subtask(String line, int all) {
    int at = line.indexOf(key);
    if (at < 0) {
      throw new IllegalArgumentException("a line has no row after its change, or the row does not begin with the key: " + line);
    }
    int start = at + key.length();
    return (line.substring(start, line.indexOf('"', start)).hashCode() & Integer.MAX_VALUE) % all;
  }

  @Override
  RowData parse(String line) throws IOException {
    if (format == null) {
      format = new DebeziumJsonDeserializationSchema(
          TypeConversions.fromLogicalToDataType(rowType()), List.of(), InternalTypeInfo.of(rowType()), false, false,
          TimestampFormat.SQL);
      try {
        format.open(new Nothing());
      } catch (Exception e) {
        throw new IOException("the format debezium-json does not start", e);
      }
      newest = new Newest();
    }
    newest.row = null;
    format.deserialize(line.getBytes(StandardCharsets.US_ASCII), newest);
    return newest.row;
  }

  /** The job's context for a format. */
  private static final class Nothing implements DeserializationSchema.InitializationContext {
    @Override
    public MetricGroup getMetricGroup() {
      return new UnregisteredMetricsGroup();
    }

    @Override
    public UserCodeClassLoader getUserCodeClassLoader() {
      return SimpleUserCodeClassLoader.create(DebeziumRows.class.getClassLoader());
    }
  }

  /** Keeps only the row after an update: Flink's SQL does not need the row before it for a table with a key either. */
  private static final class Newest implements Collector<RowData> {
    private RowData row;

    @Override
    public void collect(RowData found) {
      if (found.getRowKind() != RowKind.UPDATE_BEFORE) {
        row = found;
      }
    }

    @Override
    public void close() {
      // there is nothing to close
    }
  }
}
