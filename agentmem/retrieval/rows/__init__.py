"""The messages of a search scope as rows: facts as columns, aliases of speakers, content hashes."""
