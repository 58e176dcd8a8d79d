"""The bytes between nodes: frames, headers, subjects, replay and streams, without any I/O.

See: docs/protocol/README.md#layers.
"""
