"""Every key the job knows, with its kind, default and documentation."""
