"""One table-driven builder of portable decoder graphs, for every format that holds a checkpoint."""
