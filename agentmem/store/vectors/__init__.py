"""What retrieval reads of the store, and the vectors that it keeps there."""
