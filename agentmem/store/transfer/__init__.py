"""Export and import as JSON Lines, verified by hash chains."""
