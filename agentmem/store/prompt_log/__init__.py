"""The log of prompts, its truncation records, and the summaries that prompts showed."""
