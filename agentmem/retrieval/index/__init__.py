"""In-memory indexes of search scopes, synchronized with the store."""
