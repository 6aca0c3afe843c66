import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.options.Options;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypes;

/** The one table of a warehouse: primary key over all partitions, so an upsert may move a row from one to another. */
final class PaimonTable {
  private static final String DATABASE = "bench";
  private static final Identifier NAME = Identifier.create(DATABASE, "t");

  private PaimonTable() {}

  /** Make the table with Avro's types. It keeps the options. */
  static void create(Path warehouse, List<String> names, List<String> types, Map<String, String> options) throws Exception {
    Catalog catalog = catalog(warehouse);
    catalog.createDatabase(DATABASE, true);
    Schema.Builder schema = Schema.newBuilder().primaryKey(names.get(0)).partitionKeys("part").options(options);
    for (int i = 0; i < names.size(); i++) {
      schema.column(names.get(i), type(types.get(i)));
    }
    catalog.createTable(NAME, schema.build(), false);
  }

  /** The table, with further options of this process. */
  static FileStoreTable open(Path warehouse, Map<String, String> options) throws Exception {
    return ((FileStoreTable) catalog(warehouse).getTable(NAME)).copy(options);
  }

  /** The folder of its snapshots, which are numbered from 1. */
  static Path snapshot(Path warehouse, long number) {
    return warehouse.resolve(DATABASE + ".db").resolve("t").resolve("snapshot").resolve("snapshot-" + number);
  }

  private static Catalog catalog(Path warehouse) {
    Options options = new Options();
    options.set("warehouse", warehouse.toUri().toString());
    return CatalogFactory.createCatalog(CatalogContext.create(options));
  }

  private static DataType type(String avro) {
    return switch (avro) {
      case "string" -> DataTypes.STRING();
      case "long" -> DataTypes.BIGINT();
      case "double" -> DataTypes.DOUBLE();
      case "int" -> DataTypes.INT();
      default -> throw new IllegalArgumentException("no column can have type " + avro);
    };
  }
}
