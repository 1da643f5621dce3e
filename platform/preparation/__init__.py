"""What trials share, made once: fetched files, models, reference evaluations. It imports plan, state and schedule."""
