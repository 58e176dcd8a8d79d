"""Words of a text: stems, stop words, compounds, frequencies."""
