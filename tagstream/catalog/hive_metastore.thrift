// The part of Hive's interface (standalone-metastore/metastore-common/src/main/thrift/hive_metastore.thrift of Apache Hive)
// that a sync calls. Field numbers, names and types are Hive's; fields that only other calls need are left out. The structs
// of tables and partitions are whole: what a catalogue gives comes back to it when a table is altered.

exception MetaException { 1: string message }
exception NoSuchObjectException { 1: string message }
exception AlreadyExistsException { 1: string message }
exception InvalidObjectException { 1: string message }
exception InvalidOperationException { 1: string message }

struct FieldSchema { 1: string name, 2: string type, 3: string comment }
struct EnvironmentContext { 1: map<string, string> properties }

struct PrivilegeGrantInfo {
  1: string privilege, 2: i32 createTime, 3: string grantor, 4: i32 grantorType, 5: bool grantOption
}

struct PrincipalPrivilegeSet {
  1: map<string, list<PrivilegeGrantInfo>> userPrivileges,
  2: map<string, list<PrivilegeGrantInfo>> groupPrivileges,
  3: map<string, list<PrivilegeGrantInfo>> rolePrivileges
}

struct Database {
  1: string name, 2: string description, 3: string locationUri, 4: map<string, string> parameters,
  5: optional PrincipalPrivilegeSet privileges, 6: optional string ownerName, 7: optional i32 ownerType,
  8: optional string catalogName
}

struct SerDeInfo {
  1: string name, 2: string serializationLib, 3: map<string, string> parameters, 4: optional string description,
  5: optional string serializerClass, 6: optional string deserializerClass, 7: optional i32 serdeType
}

struct Order { 1: string col, 2: i32 order }

struct StorageDescriptor {
  1: list<FieldSchema> cols, 2: string location, 3: string inputFormat, 4: string outputFormat, 5: bool compressed,
  6: i32 numBuckets, 7: SerDeInfo serdeInfo, 8: list<string> bucketCols, 9: list<Order> sortCols,
  10: map<string, string> parameters, 12: optional bool storedAsSubDirectories
}

struct Table {
  1: string tableName, 2: string dbName, 3: string owner, 4: i32 createTime, 5: i32 lastAccessTime, 6: i32 retention,
  7: StorageDescriptor sd, 8: list<FieldSchema> partitionKeys, 9: map<string, string> parameters,
  10: string viewOriginalText, 11: string viewExpandedText, 12: string tableType,
  13: optional PrincipalPrivilegeSet privileges, 14: optional bool temporary, 15: optional bool rewriteEnabled,
  17: optional string catName, 18: optional i32 ownerType, 19: optional i64 writeId
}

struct Partition {
  1: list<string> values, 2: string dbName, 3: string tableName, 4: i32 createTime, 5: i32 lastAccessTime,
  6: StorageDescriptor sd, 7: map<string, string> parameters, 8: optional PrincipalPrivilegeSet privileges,
  9: optional string catName, 10: optional i64 writeId
}

struct GetTableRequest { 1: string dbName, 2: string tblName, 4: optional string catName }
struct GetTableResult { 1: Table table }

struct AddPartitionsRequest {
  1: string dbName, 2: string tblName, 3: list<Partition> parts, 4: bool ifNotExists, 5: optional bool needResult
}
struct AddPartitionsResult { 1: optional list<Partition> partitions }

service ThriftHiveMetastore {
  list<string> set_ugi(1: string user_name, 2: list<string> group_names) throws (1: MetaException o1)
  void create_database(1: Database database)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3)
  Database get_database(1: string name) throws (1: NoSuchObjectException o1, 2: MetaException o2)
  // Hive 4 has no get_table.
  GetTableResult get_table_req(1: GetTableRequest req) throws (1: MetaException o1, 2: NoSuchObjectException o2)
  void create_table(1: Table tbl)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void alter_table_with_environment_context(
    1: string dbname, 2: string tbl_name, 3: Table new_tbl, 4: EnvironmentContext environment_context
  ) throws (1: InvalidOperationException o1, 2: MetaException o2)
  void drop_table(1: string dbname, 2: string name, 3: bool deleteData)
    throws (1: NoSuchObjectException o1, 2: MetaException o3)
  list<Partition> get_partitions(1: string db_name, 2: string tbl_name, 3: i16 max_parts)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<Partition> get_partitions_by_names(1: string db_name, 2: string tbl_name, 3: list<string> names)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  AddPartitionsResult add_partitions_req(1: AddPartitionsRequest request)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  void alter_partitions_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: list<Partition> new_parts, 4: EnvironmentContext environment_context
  ) throws (1: InvalidOperationException o1, 2: MetaException o2)
  void alter_partitions(1: string db_name, 2: string tbl_name, 3: list<Partition> new_parts)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  bool drop_partition(1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: bool deleteData)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
}
