"""HDFS through hdfs-native, without Java: the only place that imports it."""
