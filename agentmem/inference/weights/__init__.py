"""Model weights: finding, loading, converting and optimizing them."""
