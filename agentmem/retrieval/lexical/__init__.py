"""BM25 with term frequencies smoothed over neighbouring messages."""
