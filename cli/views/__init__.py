"""What status commands show, as pure functions of the projected state: JSON-ready dictionaries."""
