"""Clusters: `ray up` files, checks, the account, submission from a laptop. It imports state."""
