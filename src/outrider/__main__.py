"""``python -m outrider``: the command line."""

from outrider.cli.main import run

if __name__ == "__main__":
    run()
