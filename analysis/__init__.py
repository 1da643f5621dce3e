"""What you see: a sweep's trials as pandas, and from them tables, figures and report. It imports light trainables."""

import trainables as trainables  # first: where packages are missing, it says what to type
