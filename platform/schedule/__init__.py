"""Ray and Optuna: the session, what the cluster holds, Optuna's studies. It imports plan."""
