"""Clusters: files of `ray up` and KubeRay, checks, the account, submission from a laptop. It imports state."""
