"""Preparation of images for a model: decoding, orientation, size and format."""
