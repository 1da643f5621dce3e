"""What one trial does on a worker: objectives, rectification, engine, benchmarks, evaluation."""
