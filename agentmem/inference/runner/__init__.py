"""Forward passes: batches, their KV buffers, shared-prefix attention, probes of a model."""
