"""How the documentation site is built; `make docs` builds it, and every warning is an error."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "epifed"
author = "The epifed contributors"
project_copyright = author
version = release = version_of("epifed")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "executed", "reference"]
exclude_patterns = [
    "_build", "_ext", "containers", "monitoring", "proxy", "systemd", "windows",
]  # fmt: skip
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
smartquotes = False  # an option keeps its two hyphens
html_theme = "furo"
html_title = f"epifed {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
