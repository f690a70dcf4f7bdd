"""Estimators that keep scikit-learn's contract."""
