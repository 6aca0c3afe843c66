"""Where files are: local files, object stores, HDFS."""
