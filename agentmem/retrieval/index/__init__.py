"""What is kept in memory for a search scope, in step with the store."""
