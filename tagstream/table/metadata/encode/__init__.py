"""What a metadata table holds, as bytes: HFiles, and the records in them."""
