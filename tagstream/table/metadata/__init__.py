"""The metadata table: Hudi's own listing, column statistics and record index, read without Hudi."""
