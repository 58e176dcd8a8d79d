"""The attacks of docs/security.md, against a node whose processes are real."""
