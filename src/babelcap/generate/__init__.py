"""The dataset pipeline: clean, caption, translate, embed, align, assemble; each a stage that maps shard to shard."""
