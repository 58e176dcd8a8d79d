"""Tools for a model without native calls: declared in its prompt, called in its text.

`prompt` writes, `parser` reads, `backend` does both for one answer.

See: docs/tools.md#models-without-tool-calls.
"""
