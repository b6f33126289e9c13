"""How is jaxflow used from a terminal? `main` is the program `jaxflow`."""


def main() -> None:
    """Run the command line."""
    from jaxflow.cli.app import app

    app()
