"""Identity and authority: pure functions over bytes and documents, no I/O.

See: docs/architecture.md#the-rooms.
"""
