"""What you see: a sweep's trials as pandas, and from them the tables, the figures and the report."""
