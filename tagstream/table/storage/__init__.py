"""Storages of files: local files, object stores, HDFS."""
