"""Apertium through persistent pipelines (docs/decisions/0122)."""
