"""Task vectors: how a direction is made on several ranks and how a model is moved along it."""
