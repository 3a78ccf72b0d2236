"""`python -m babelcap`, and `torchrun -m babelcap`."""

from babelcap.cli import main

if __name__ == "__main__":
    main()
