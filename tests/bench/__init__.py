"""The benchmark: `make bench` runs every `*_bench.py` here (docs/performance.md)."""
