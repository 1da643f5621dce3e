"""Forward passes without gradients: scoring and generation. It imports common and config."""
