"""`python -m tideline` is `tideline`."""

from ingest.cli.main import main

if __name__ == "__main__":
    main()
