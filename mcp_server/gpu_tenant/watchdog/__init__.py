"""The watchdog: looks at every lease when nobody else does, and enforces the lease's terms."""
