"""Object stores (S3, GCS, Azure) by key, through obstore: the only place that imports it."""
