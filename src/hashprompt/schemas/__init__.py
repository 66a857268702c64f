"""One schema per JSON file that is read back: of runs, and of classifiers."""
