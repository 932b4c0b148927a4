"""Foreign runtimes, each job in a child process with a time limit."""
