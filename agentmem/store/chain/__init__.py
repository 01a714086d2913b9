"""Hash chains: of branches, prompt logs, summaries and pins."""
