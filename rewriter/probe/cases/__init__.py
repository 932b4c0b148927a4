"""The cases, a module for each family of ops (:mod:`rewriter.probe.case` finds them by itself)."""
