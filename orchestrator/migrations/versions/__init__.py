"""One module per change of the database's layout, in order of their numbers."""
