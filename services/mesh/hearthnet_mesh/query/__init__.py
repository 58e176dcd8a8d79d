"""`mesh.query`: the views, the gates before the database, and the wall around it (docs/decisions/0071)."""
