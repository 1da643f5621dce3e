"""Attacks on an unlearned model that bring back what it forgot. It imports trial and what that imports."""
