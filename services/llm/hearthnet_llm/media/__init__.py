"""Images on their way to a model: read, turned upright, made small enough, in a form that it takes."""
