"""`python -m tests.benchmarks [NAME]...`: run the benchmarks named, or all of them."""

import importlib
import sys

BENCHMARKS = ("cluster_start", "training_loop", "prediction", "grading")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"No benchmark is called {', '.join(unknown)}. There are: {', '.join(BENCHMARKS)}.")
    for name in names or BENCHMARKS:
        importlib.import_module(f"{__package__}.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
