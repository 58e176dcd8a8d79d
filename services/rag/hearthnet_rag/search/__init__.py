"""Queries against the index: words, vectors, ranking."""
