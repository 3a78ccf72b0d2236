"""What is compiled, where a compiler was there: optional, and equal bit for bit to what is used without it."""
