"""Members of public classes: those that baryflow defines, not those of scikit-learn or of tuples."""

from typing import Any

from sphinx.application import Sphinx


def _skip(_app: Sphinx, _what: str, name: str, member: Any, *_: Any) -> bool | None:
    """Return True for members that are left out, None for those about which autodoc decides."""
    function = getattr(member, "fget", None) or getattr(member, "func", None) or member
    module = getattr(function, "__module__", None) or "baryflow"
    is_field = (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
    is_routing = name.startswith("set_") and name.endswith("_request")  # scikit-learn's
    is_foreign = not module.startswith("baryflow")
    is_internal = name == "kind" or isinstance(member, type)  # how files name the class
    return True if is_field or is_routing or is_foreign or is_internal else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the event."""
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
