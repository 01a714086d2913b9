"""What might matter: messages of earlier turns, found by their words and by their meaning."""
