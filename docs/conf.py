"""Build the documentation: ``make docs``. Nothing is fetched, neither by the build nor by the pages."""

import shutil
import sys
from pathlib import Path

import baryflow

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "baryflow"
author = "the baryflow developers"
copyright = author  # noqa: A001 - Sphinx's name
release = version = baryflow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",  # equations without JavaScript
    "outside",  # links to files outside this folder
    "public",  # members of public classes
    "tables",  # commands, routes and metrics, from the code
]
templates_path = ["_templates"]
exclude_patterns = ["_extensions", "_templates", "**/GALLERY_HEADER*", "gallery/**/*.ipynb"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
# Their documentation is not fetched.
nitpick_ignore_regex = [("py:.*", r"(dask|numpy|scipy|sklearn)\..*")]
smartquotes = False
toc_object_entries_show_parents = "hide"

# -- pages ---------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

# -- reference -----------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # numpydoc sections have the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template lists them
numpydoc_xref_param_type = False

# -- gallery -------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "matplotlib_animations": False,
    "image_scrapers": ("matplotlib",),
}

# Pages of names and examples that no longer exist would be built, too.
_HERE = Path(__file__).parent
shutil.rmtree(_HERE / "reference" / "api", ignore_errors=True)
for _page in (_HERE / "gallery").glob("plot_*"):
    if not any(_HERE.glob(f"../examples/gallery/{_page.name.split('.')[0]}.py")):
        _page.unlink()

# -- HTML ----------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "baryflow"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "header_links_before_dropdown": 8,
    "navbar_align": "left",  # one line: the logo does not take a quarter of it
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_center": [],
    "footer_end": [],
    "navbar_end": ["theme-switcher"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "get-started": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
