"""Recorded exchanges with vendors against our translation: `python -m tests.conformance.providers FOLDER`.

Any folder laid out as docs/vendors.md says: one folder per provider, one JSON file per exchange. Each answer
is fed to the product's decoder, whole and cut anywhere, and compared with a second, simple reading of the
same bytes (`wires/`). Each request is read into the canonical form, sent through the contract as JSON, built
again and compared field by field (`requests.py`).
"""
