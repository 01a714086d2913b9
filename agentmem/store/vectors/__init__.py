"""The store's side of retrieval: messages and vectors."""
