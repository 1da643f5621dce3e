"""Models that sweeps run on: every Backbone of a file here can be chosen with --set backbone=NAME."""
