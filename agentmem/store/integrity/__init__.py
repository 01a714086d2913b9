"""Verification: what is stored against itself and against a head that was kept elsewhere."""
