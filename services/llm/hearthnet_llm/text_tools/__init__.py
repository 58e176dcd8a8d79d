"""Tools for a model that has none: declared in its prompt, called in its text (tools.md, "Without native
tools").

`prompt` writes, `parser` reads, `asking` does both for one answer.
"""
