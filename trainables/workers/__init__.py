"""The only Ray in here: the actor of trials, the launcher of ranks, what trials share. It imports every package."""
