"""Selection, significance, intervals, calibration. It imports load, labels and paper."""
