"""The paper's figures and tables, made with :mod:`baryflow.paper`."""
