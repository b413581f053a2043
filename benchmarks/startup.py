"""How long `polypscope --help` takes, as a multiple of `python -c "import numpy"`.

    python benchmarks/startup.py

The two commands are run in turn, so that a busy machine slows both; the ratio of the medians is printed. The limit that
we hold ourselves to is 3.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "polypscope --help": [sys.executable, "-m", "polypscope", "--help"],
    "import polypscope": [sys.executable, "-c", "import polypscope"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    floor = statistics.median(seconds["import numpy"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:20} {middle * 1000:7.0f} ms   {middle / floor:4.2f} x import numpy")


if __name__ == "__main__":
    main()
