"""Who is who and who may do what: pure functions over bytes and documents, no I/O.

See: docs/architecture.md#layers.
"""
