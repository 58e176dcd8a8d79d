"""Backups of a home: encrypted for the person's recovery key, incremental by content.

See: docs/protocol/backup.md.
"""
