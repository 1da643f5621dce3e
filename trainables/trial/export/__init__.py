"""A kept trial as a folder that transformers loads, verified, with a card. It imports trial."""
