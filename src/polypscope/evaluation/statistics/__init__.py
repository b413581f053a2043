"""Is a difference between methods more than chance? Tests, rankings and agreement, as pure functions over arrays."""

from polypscope.evaluation.statistics.agreement import fleiss_kappa, krippendorff_alpha
from polypscope.evaluation.statistics.comparison import Comparison, compare
from polypscope.evaluation.statistics.omnibus import (
    Omnibus,
    PairwiseTest,
    anova_tukey_kramer,
    comparison_half_widths,
    friedman,
    kruskal_dunn,
    shapiro_wilk,
)
from polypscope.evaluation.statistics.ranking import SCHEMES, Ranking, rank_methods, ranking_stability, wilcoxon_wins

__all__ = [
    "SCHEMES",
    "Comparison",
    "Omnibus",
    "PairwiseTest",
    "Ranking",
    "anova_tukey_kramer",
    "compare",
    "comparison_half_widths",
    "fleiss_kappa",
    "friedman",
    "krippendorff_alpha",
    "kruskal_dunn",
    "rank_methods",
    "ranking_stability",
    "shapiro_wilk",
    "wilcoxon_wins",
]
