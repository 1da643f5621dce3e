"""Rules that combine the forget gradient and the retain gradient; it imports rectifiers.base and gru."""
