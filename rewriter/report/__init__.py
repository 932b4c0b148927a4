"""Reports of a run: ``text`` for the terminal, ``data`` as the contract's JSON."""
