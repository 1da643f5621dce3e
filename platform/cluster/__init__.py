"""Clusters of `ray up`, KubeRay and Slurm: checks of their files, an AWS account, jobs from a laptop."""
