"""A conversation memory for agents that knows exactly what the model sees."""
