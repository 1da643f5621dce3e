"""The report's page: sections and HTML. It imports every package of analysis."""
