"""A campaign: what is planted for one person of a home reaches nobody else of it."""
