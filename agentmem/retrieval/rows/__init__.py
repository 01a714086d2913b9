"""The messages of a search scope as rows: metadata columns, speaker aliases, content hashes."""
