"""Models that sweeps run on: each Backbone in a file here can be chosen with --set backbone=NAME. It imports schema."""
