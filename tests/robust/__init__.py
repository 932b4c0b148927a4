"""What must not break the tool: damaged and hostile files, full disks, little memory, kill -9.

A few inputs of each kind run by default. The long run draws others every time::

    FUZZ_INPUTS=5000 FUZZ_SEED=1 pytest -m slow tests/robust

so many of each kind (:mod:`tests.robust.kinds`), in watched child processes
(:mod:`tests.robust.watched`). Without ``FUZZ_LOG=findings.jsonl`` it stops at the first finding;
with it every finding is written there, with the seed and number that make it again::

    python -m tests.robust.worker KIND SEED NUMBER 1 FOLDER
"""
