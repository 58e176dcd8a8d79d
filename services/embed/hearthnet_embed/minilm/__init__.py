"""all-MiniLM-L6-v2 of sentence-transformers (Apache-2.0), from a package with its weights."""
