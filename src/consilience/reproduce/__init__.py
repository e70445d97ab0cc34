"""Every table and figure of both papers as a recipe; ours beside the paper's numbers."""

from consilience.reproduce import calum_makers, pararel_makers
from consilience.reproduce.recipe import Found, Recipe, carry_out, find_recipe, load_recipes
from consilience.reproduce.work import Request, Work

RECIPES = load_recipes(pararel_makers, calum_makers)
"""The recipes by name."""

__all__ = ["RECIPES", "Found", "Recipe", "Request", "Work", "carry_out", "find_recipe"]
