"""What every package may use: errors, words, redaction, hashing, paths, processes. It imports no other package."""
