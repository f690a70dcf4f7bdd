"""Sample rows from tag values that arrive one at a time."""
