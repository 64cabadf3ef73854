"""Lambda Cloud: whole virtual machines, billed by the minute."""
