"""Ray and Optuna: the session, what the cluster holds, which trial comes next. It imports plan."""
