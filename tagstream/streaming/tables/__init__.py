"""Several tables in one job, as HoodieMultiTableStreamer has them."""
