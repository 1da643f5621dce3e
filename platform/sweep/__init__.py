"""One start of a sweep, from its plan through Ray Tune to its last line. It imports every package but `status`."""

import trainables as trainables  # first: where packages are missing, it says what to type
