"""Where results lie: a folder, or an object store that each machine keeps a copy of. It imports common and config."""
