"""Proof of exactly once: runs of the tool loop whose processes are killed at named steps (docs/tools.md)."""
