"""Selection, significance, intervals, calibration, hypervolume. It imports load, labels and paper."""
