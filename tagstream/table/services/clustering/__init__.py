"""Clustering: small file groups are joined into new ones, their rows sorted by columns if wished."""
