"""Score an exported segmenter again and write the figures into its card, without touching the file.

    python recipes/score.py src/polypscope/runtime/weights/polypscope-segmenter.onnx recipes/segmenter.card.toml

The second file names the pictures: the [[score_on]] tables of the facts that `polypscope export` takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from polypscope.runtime.cards import Score, add_scores
from polypscope.training.export import read_facts
from polypscope.training.scores import score_sets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="exported .onnx file")
    parser.add_argument("facts", type=Path, help="TOML file with [[score_on]] tables")
    options = parser.parse_args()
    found = score_sets(options.model, read_facts(options.facts)["score_on"], options.facts.parent)
    scores = [Score.model_validate(row) for row in found]
    for score in scores:
        print(f"{score.data:24} {score.metric:20} {score.value:.4f} {score.images:5}")
    add_scores(options.model.with_suffix(".json"), scores)


if __name__ == "__main__":
    main()
