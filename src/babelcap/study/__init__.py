"""The study: the whole method as a graph of steps, from a world or a corpus to laws and a report."""
