import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;

/** JSON objects as rows. The first column is the key. */
class JsonRows implements Serializable {
  private final String[] names;
  private final String[] types;
  private final String start;
  private transient JsonFactory json;

  /** Columns and their Avro types (string, long, double, int). */
  JsonRows(List<String> names, List<String> types) {
    this.names = names.toArray(new String[0]);
    this.types = types.toArray(new String[0]);
    this.start = "{\"" + names.get(0) + "\":\"";
  }

  RowType rowType() {
    LogicalType[] found = new LogicalType[types.length];
    for (int i = 0; i < found.length; i++) {
      boolean nullable = i > 0;
      found[i] = switch (types[i]) {
        case "string" -> new VarCharType(nullable, VarCharType.MAX_LENGTH);
        case "long" -> new BigIntType(nullable);
        case "double" -> new DoubleType(nullable);
        case "int" -> new IntType(nullable);
        default -> throw new IllegalArgumentException("column " + names[i] + " has type " + types[i]);
      };
    }
    return RowType.of(false, found, names);
  }

  /** The columns in the form of HoodiePipeline. */
  String[] sqlColumns() {
    RowType type = rowType();
    String[] found = new String[names.length];
    for (int i = 0; i < found.length; i++) {
      found[i] = "`" + names[i] + "` " + type.getTypeAt(i).asSerializableString();
    }
    return found;
  }

  /** The subtask for a line: by its key, without parsing the rest. */
  int subtask(String line, int all) {
    if (!line.startsWith(start)) {
      throw new IllegalArgumentException("a line does not begin with the key: " + line);
    }
    return (line.substring(start.length(), line.indexOf('"', start.length())).hashCode() & Integer.MAX_VALUE) % all;
  }

  RowData parse(String line) throws IOException {
    if (json == null) {
      json = new JsonFactory();
    }
    GenericRowData row = new GenericRowData(names.length);
    try (JsonParser parser = json.createParser(line)) {
      parser.nextToken();
      int expected = 0;
      while (parser.nextToken() != JsonToken.END_OBJECT) {
        int at = position(parser.getCurrentName(), expected);
        if (parser.nextToken() != JsonToken.VALUE_NULL) {
          row.setField(at, value(parser, types[at]));
        }
        expected = at + 1;
      }
    }
    return row;
  }

  private static Object value(JsonParser parser, String type) throws IOException {
    return switch (type) {
      case "string" -> StringData.fromString(parser.getText());
      case "long" -> parser.getLongValue();
      case "double" -> parser.getDoubleValue();
      default -> parser.getIntValue();
    };
  }

  /** The fields of an object are usually in the order of the columns. */
  private int position(String name, int expected) throws IOException {
    if (expected < names.length && names[expected].equals(name)) {
      return expected;
    }
    for (int i = 0; i < names.length; i++) {
      if (names[i].equals(name)) {
        return i;
      }
    }
    throw new IOException("no column is named " + name);
  }
}
