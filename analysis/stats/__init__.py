"""Selection, significance, intervals, the noise of retraining. It imports load and labels."""
