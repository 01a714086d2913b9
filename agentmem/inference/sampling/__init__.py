"""From logits to text: sampling and detokenizing."""
