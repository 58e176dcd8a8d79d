"""Capabilities made from functions, and their contracts (docs/services.md#a-function)."""
