"""Sessions, their branches, messages, tool calls and pins."""
