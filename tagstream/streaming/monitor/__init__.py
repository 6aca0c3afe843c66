"""What a run reports: progress, status, page and metrics, and the probes that read their values."""
