"""Every table and figure of both papers as a recipe; ours beside the paper's numbers."""

from consilience.reproduce import calum, claims, pararel
from consilience.reproduce.recipe import (
    Recipe,
    RecipeResult,
    Request,
    Work,
    carry_out,
    load_recipes,
)

RECIPES = load_recipes(pararel, calum, claims)

__all__ = ["RECIPES", "Recipe", "RecipeResult", "Request", "Work", "carry_out"]
