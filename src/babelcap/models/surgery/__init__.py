"""Making a captioner of published parts, with every key accounted for."""
