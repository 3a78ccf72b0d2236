"""The captioner itself: encoder, decoders, gated cross-attention, loss."""
