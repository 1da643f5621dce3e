"""What you see: a sweep's trials as pandas, and from them tables, figures and report. It imports light trainables."""
