"""Rules that combine the forget gradient and the retain gradient, a file each; it imports rectifiers.base and gru."""
