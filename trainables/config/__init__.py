"""What a trial is: field types, settings, Trial and its id. It imports common alone, and never torch."""
