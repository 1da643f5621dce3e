"""One benchmark a file: its rows, its metrics, its dialects."""
