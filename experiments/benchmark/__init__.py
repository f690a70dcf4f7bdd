"""A benchmark of online multi-source adaptation: calibrations differ, and so do class proportions."""
