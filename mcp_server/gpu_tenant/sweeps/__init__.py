"""One command over a grid of parameters and many boxes."""
