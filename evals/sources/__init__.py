"""Whether the sentences that facts rest on still stand in a newer copy of a vendor's documentation."""
