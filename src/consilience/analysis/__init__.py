"""Why a model answers as it does: what it is asked, what it holds, what it was trained on."""
