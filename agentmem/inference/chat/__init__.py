"""From messages to token ids: chat templates, tokenizers, cached segments."""
