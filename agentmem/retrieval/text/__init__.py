"""Text analysis: tokenization, stemming and stop words in any script."""
