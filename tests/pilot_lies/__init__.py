"""A pilot at platforms that lie: what it finds, what stays on the meter, and what it costs."""
