"""Export and import as JSON Lines, with the proof that an import is held against."""
