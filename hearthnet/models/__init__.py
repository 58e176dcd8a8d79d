"""Shared parts of services with models: pinned files, and connections to models' servers."""
