"""The only Ray in here: the trials in an actor or on ranks, what trials share. It imports every package."""
