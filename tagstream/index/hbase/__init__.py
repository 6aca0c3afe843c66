"""HBASE: locations of record keys in a table of Apache HBase, cell for cell as Hudi keeps them."""
