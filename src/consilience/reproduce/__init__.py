"""Every table and figure of both papers as a recipe; ours beside the paper's numbers."""

from consilience.reproduce import calum, pararel
from consilience.reproduce.recipe import (
    RECIPES,
    Found,
    Recipe,
    Work,
    carry_out,
    find_recipe,
    recipe,
)

__all__ = [
    "RECIPES",
    "Found",
    "Recipe",
    "Work",
    "calum",
    "carry_out",
    "find_recipe",
    "pararel",
    "recipe",
]
