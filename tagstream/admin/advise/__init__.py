"""Which index fits a stream: measured on its own records."""
