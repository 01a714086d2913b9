"""Words of a text: tokenizing, stemming and stop words in any script."""
