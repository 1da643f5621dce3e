"""The report's verdict and caveats in sentences. It imports tables, figures and what is below."""
