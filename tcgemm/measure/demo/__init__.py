"""`python -m tcgemm demo`: the main job on real input, without a network."""
