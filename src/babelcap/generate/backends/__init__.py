"""Models that stages call: each behind a small protocol, chosen by name, loaded once a process."""
