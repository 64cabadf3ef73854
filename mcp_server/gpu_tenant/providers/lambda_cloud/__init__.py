"""Lambda Cloud: whole virtual machines, by the minute."""
