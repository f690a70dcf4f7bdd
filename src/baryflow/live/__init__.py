"""Demos on the live page: the embedded stream, or the simulated plant itself, feed a service."""
