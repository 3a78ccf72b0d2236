"""From the store to a batch: mixture, reading, tokens, pixels."""
