"""Configuration of a trial: field types, settings, Trial and its id. It imports common alone, and never torch."""
