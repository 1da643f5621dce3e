"""MLflow as a view of the storage. It imports state and plan."""

import trainables as trainables  # first: where packages are missing, it says what to type
