"""One trial from its configuration to its result. It imports every package above but workers."""
