"""What services with models have in common: files that are pinned, and the way to a model's server."""
