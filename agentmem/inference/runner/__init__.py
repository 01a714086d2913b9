"""Forward passes: batches, their KV buffers, attention over a shared prefix, probes of a model."""
