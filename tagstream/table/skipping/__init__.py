"""Which files a query need not open: filters against partitions, ranges, buckets and statistics."""
