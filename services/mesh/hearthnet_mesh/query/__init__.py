"""`mesh.query`: its views, its checks of a query, and its isolated database.

See: docs/decisions/0071.
"""
