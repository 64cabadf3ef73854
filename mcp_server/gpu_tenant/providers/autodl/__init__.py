"""AutoDL: *instances Pro*, billed by the second."""
