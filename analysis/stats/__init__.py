"""Selection, significance, intervals, calibration, hypervolume. It imports load and paper."""
