"""``python -m mutation``; see ``scripts/mutate``."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
from pathlib import Path
from typing import Final

from mutation.faults import Fault, faults_of
from mutation.settings import Settings
from mutation.trial import Outcome, run_trial

ROOT: Final = Path(__file__).parents[2]
#: What tests import; loaded once, before the trials fork off.
HEAVY: Final = ("torch", "numpy", "scipy.stats", "tokenizers", "hypothesis", "transformers")
#: A trial may take this many times as long as the tests take without a fault, and some seconds.
PATIENCE: Final = 3.0
GRACE: Final = 20.0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutate", description="Plant faults one at a time; say which no test notices."
    )
    parser.add_argument("modules", nargs="*", help="rooms or modules, such as verify or text.stops")
    parser.add_argument("--sample", type=int, default=40, help="faults to plant; 0 plants all")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument("--match", default="", help="only faults whose function or change has this")
    parser.add_argument("--limit", type=float, help="seconds for each; follows from the tests")
    parser.add_argument(
        "--quick", action="store_true", help="without the engine tests that run last"
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "mutants.json")
    parser.add_argument("--settings", type=Path, default=ROOT / "dev" / "mutants.toml")
    parser.add_argument("--list", action="store_true", help="list the sample and plant nothing")
    return parser.parse_args()


def modules_of(settings: Settings, wanted: list[str]) -> dict[str, Path]:
    """Modules that have a room, or those of them that were asked for."""
    source = ROOT / "src"
    found = {}
    for path in sorted(source.rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        inside = module.removeprefix("outrider.")
        asked = not wanted or any(inside == one or inside.startswith(f"{one}.") for one in wanted)
        if asked and path.name != "__init__.py" and settings.room_of(inside):
            found[module] = path
    return found


class Campaign:
    """Trials of a sample, and what came of them."""

    def __init__(self, settings: Settings, quick: bool, limit: float | None, log: Path) -> None:
        self._settings = settings
        self._quick = quick
        self._limit = limit
        self._log = log
        self._limits: dict[tuple[str, ...], float] = {}
        self.entries: list[dict[str, object]] = []

    def tests(self, fault: Fault) -> tuple[str, ...]:
        """What runs for a fault."""
        room = self._settings.room_of(fault.key[0])
        assert room is not None
        return room.tests if self._quick else (*room.tests, *room.last)

    def limit(self, tests: tuple[str, ...]) -> float:
        """Seconds that a trial may take; the tests must pass without a fault."""
        if tests not in self._limits:
            outcome = run_trial(None, tests, 3600.0, self._log)
            if outcome.noticed:
                raise SystemExit(f"mutate: {outcome.by} fails without a fault; see {self._log}")
            say(f"without a fault {' '.join(tests)} take {outcome.seconds:.1f} s")
            self._limits[tests] = self._limit or PATIENCE * outcome.seconds + GRACE
        return self._limits[tests]

    def plant(self, fault: Fault, place: str) -> None:
        """Try one fault."""
        tests = self.tests(fault)
        outcome = run_trial(fault, tests, self.limit(tests), self._log)
        say(f"{place} {outcome.result:8} {outcome.seconds:6.1f} s  {described(fault)}")
        if outcome.by:
            say(f"{'':{len(place)}} by {outcome.by}")
        self.entries.append(entry(fault, outcome))

    @property
    def survivors(self) -> list[dict[str, object]]:
        """What no test noticed."""
        return [one for one in self.entries if one["result"] in ("survived", "unused")]


def entry(fault: Fault, outcome: Outcome) -> dict[str, object]:
    """What the JSON file says of a trial."""
    return {
        "module": fault.key[0],
        "function": fault.function,
        "change": fault.change,
        "number": fault.number,
        "line": fault.line,
        "result": outcome.result,
        "by": outcome.by,
        "seconds": round(outcome.seconds, 2),
    }


def described(fault: Fault) -> str:
    """One line for people."""
    where = f"{fault.path.relative_to(ROOT)}:{fault.line}"
    number = f" (no. {fault.number})" if fault.number > 1 else ""
    return f"{where} {fault.function}: {fault.change}{number}"


def say(line: str) -> None:
    """Show progress."""
    print(line, flush=True)  # noqa: T201 - a command


def main() -> int:
    """Plant a sample of faults; 1 if one of them survived."""
    options = arguments()
    settings = Settings.read(options.settings)
    modules = modules_of(settings, options.modules)
    if not modules:
        raise SystemExit(f"mutate: no module of {options.settings} is called that")
    faults = [fault for module, path in modules.items() for fault in faults_of(module, path)]
    for key in settings.unknown(faults, {fault.key[0] for fault in faults}):
        say(f"{options.settings.name} lists what cannot be planted: {key}")
    counted = [
        fault
        for fault in faults
        if fault.key not in settings.equivalents
        and options.match in f"{fault.function}: {fault.change}"
    ]
    sample = counted
    if 0 < options.sample < len(counted):
        sample = random.Random(options.seed).sample(counted, options.sample)
        sample.sort(key=lambda fault: fault.key)
    say(f"{len(sample)} of {len(counted)} faults in {len(modules)} modules, seed {options.seed}")
    if options.list:
        for fault in sample:
            say(described(fault))
        return 0
    for name in HEAVY:
        importlib.import_module(name)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(settings, options.quick, options.limit, options.json.with_suffix(".log"))
    for index, fault in enumerate(sample, start=1):
        campaign.plant(fault, f"{index}/{len(sample)}")
        options.json.write_text(json.dumps(campaign.entries, indent=1))
    return report(campaign)


def report(campaign: Campaign) -> int:
    """Say which faults survived."""
    survivors = campaign.survivors
    say(f"\n{len(survivors)} of {len(campaign.entries)} survived")
    for one in survivors:
        say(f"  {one['module']} {one['function']}: {one['change']} ({one['result']})")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
