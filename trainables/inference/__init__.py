"""Forward passes without gradients: scoring, generation, caches. It imports common, config, storage and data."""
