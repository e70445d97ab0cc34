"""Every table and figure of both papers as a recipe; ours beside the paper's numbers."""

from consilience.reproduce import calum_makers, claim_makers, pararel_makers
from consilience.reproduce.recipe import Recipe, RecipeResult, carry_out, find_recipe, load_recipes
from consilience.reproduce.work import Request, Work

RECIPES = load_recipes(pararel_makers, calum_makers, claim_makers)
"""The recipes by name."""

__all__ = ["RECIPES", "Recipe", "RecipeResult", "Request", "Work", "carry_out", "find_recipe"]
