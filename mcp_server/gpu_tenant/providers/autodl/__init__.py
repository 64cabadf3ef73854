"""AutoDL: instances Pro, by the second."""
