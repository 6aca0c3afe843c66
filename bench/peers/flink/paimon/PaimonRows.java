import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;

/** Paimon's own reader: key, partition and time of every row as lines of {@code out}, separated by commas. */
public final class PaimonRows {
  private PaimonRows() {}

  public static void main(String[] args) throws Exception {
    JsonNode order = new ObjectMapper().readTree(Files.readString(Path.of(args[0])));
    ReadBuilder read = PaimonTable.open(Path.of(order.get("table").asText()), Map.of())
        .newReadBuilder().withProjection(new int[] {0, 1, 2});
    try (BufferedWriter out = Files.newBufferedWriter(Path.of(order.get("out").asText()))) {
      out.write("id,part,ts\n");
      for (Split split : read.newScan().plan().splits()) {
        RecordReader<InternalRow> reader = read.newRead().createReader(split);
        try (RecordReaderIterator<InternalRow> rows = new RecordReaderIterator<>(reader)) {
          while (rows.hasNext()) {
            InternalRow row = rows.next();
            out.write(row.getString(0) + "," + row.getString(1) + "," + row.getLong(2) + "\n");
          }
        }
      }
    }
    System.exit(0);
  }
}
