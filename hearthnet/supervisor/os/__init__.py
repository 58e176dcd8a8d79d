"""Processes, pipes, files and signals of the operating system."""

from __future__ import annotations
