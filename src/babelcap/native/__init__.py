"""What is compiled, where a compiler was there: optional. int8 is equal bit for bit to what is used without it."""
