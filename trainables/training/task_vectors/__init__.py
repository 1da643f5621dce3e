"""Task vectors: how a direction is made on several ranks and how a model moves along it. It imports training."""
