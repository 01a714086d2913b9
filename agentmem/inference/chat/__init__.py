"""From messages to token ids: chat templates, tokenizers, segments that are encoded once."""
