"""Clusters of `ray up`, KubeRay and Slurm: checks of their files, an AWS account, jobs from a laptop."""

import trainables as trainables  # first: where packages are missing, it says what to type
