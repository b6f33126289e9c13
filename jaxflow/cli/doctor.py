"""Is this machine fit for jaxflow? One line per finding, with the remedy where one is needed."""

from jaxflow.cli.exits import FAILED, stop


def doctor() -> None:
    """Print the findings; stop with code 3 if one is bad."""
    from jaxflow import runtime

    runtime.configure()
    findings = runtime.doctor()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{'ok ' if finding.ok else 'BAD'}  {finding.name:<{width}}  {finding.detail}")
        if not finding.ok:
            print(f"     fix: {finding.fix}")
    bad = [finding.name for finding in findings if not finding.ok]
    if bad:
        raise stop(f"not in order: {', '.join(bad)}", FAILED)
