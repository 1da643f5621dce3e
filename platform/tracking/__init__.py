"""MLflow as a view of the storage. It imports state and plan."""
