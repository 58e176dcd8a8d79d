"""all-MiniLM-L6-v2 of sentence-transformers (Apache-2.0), from the package that carries its weights."""
