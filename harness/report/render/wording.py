"""Why a column, a row or a claim has no verdict, and what signs mean: fixed sentences that other modules fill in."""

from harness.report.stats.seeds import MIN_SEEDS

# of a column
NOT_BEHIND = "the control is not clearly behind the reference"
NOT_SEARCHED = "not every row's learning rate was searched"
EQUAL_SEEDS = "no row's score differs between its seeds"
FEW_ROWS = f"no two rows have {MIN_SEEDS} seeds in common"
NO_ROLE = "the table has no {} in this column"
ROLE_NOT_RUN = "the {} ({}) was not run"
NO_SEEDS = f"no row has {MIN_SEEDS} seeds"
FEW_SEEDS_OF_ROLES = f"{{}}: fewer than {MIN_SEEDS} seeds"
NO_INTERVAL = "no seed of the control or the reference differs from its others: there is no interval"
# of a row, by the search of its learning rate
NO_CHOICE = "no search chose the learning rate of {}, and others may turn this round"
ON_EDGE = "the best learning rate of {} is at the end of its grid, and one further out may turn this round"
OUTDONE = "every seed of {} at the recipe's learning rate is ahead of all at the chosen one"
# of a claim
NO_RUN = "no run of {}"
FEW_SEEDS = f"fewer than {MIN_SEEDS} seeds of {{}}"
FEW_IN_COMMON = f"fewer than {MIN_SEEDS} seeds in common on the same data"
NO_TEST = "no test of {} against {}: {}"
BEYOND_MARGIN = "the interval of the difference reaches beyond the margin"
NOT_SEPARATED = "no test separates the rows"
RANKS_NOTHING = "the column cannot rank rows: {}"
UNKNOWN_RESOLUTION = "the resolution of the column is unknown: {}"
# below a grid
UNMEASURED = "Simple predictors: not measured{}."
# of a sign, behind the sign itself
SIGN_UNCLEAR = "unclear, neither tied with the best row (bold) nor behind it"
SIGN_BELOW = "below a simple predictor"
SIGN_LEAK = "the checkpoint was chosen on the test split"
SIGN_EDGE = "the learning rate is at the end of its grid"
SIGN_OUTDONE = "the recipe's learning rate is better than the chosen one"
SIGN_AT_FLOOR = "at the floor, no better on validation than the best simple predictor"
SIGN_RECIPE = "the learning rate of the recipe, because its search is not complete in every column"
SIGN_NO_RUN = "no run, or no measurement"
