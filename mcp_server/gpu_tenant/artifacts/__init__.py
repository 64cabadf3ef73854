"""What a job leaves, on its way home: push, collect, snapshot, prune, restore."""
