"""What one trial does on a worker, from objectives to evaluation. It imports neither platform nor analysis."""
