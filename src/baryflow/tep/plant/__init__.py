"""The plant under its controller, and simulations of it. Only ``model`` needs the extra ``tep``."""
