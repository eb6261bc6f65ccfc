"""The published guidelines as small experiments: does the model show their direction?

    python benchmarks/guidelines

Each line plans two or more variants of one problem; the last column says whether the direction
that the guideline states comes out. A "no" is a finding about the model, not an error.
"""

from __future__ import annotations

import generation
import placement
import training


def main() -> None:
    """Print one block an experiment and the count."""
    agreeing = 0
    experiments = (*generation.EXPERIMENTS, *training.EXPERIMENTS, *placement.EXPERIMENTS)
    for experiment in experiments:
        found = experiment()
        agreeing += found.agrees
        print(f"{'yes' if found.agrees else 'NO '}  {found.guideline}")
        print(f"     {found.experiment}")
        print(f"     {found.shown}", flush=True)
    print(f"\n{agreeing} of {len(experiments)} directions shown")


if __name__ == "__main__":
    main()
