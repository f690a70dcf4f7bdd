"""Demos on the live page: a service fed by the embedded stream or by the simulated plant."""
