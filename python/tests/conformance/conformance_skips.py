"""What a kind of backend does not show, and why (CL-75). Nothing else of the suite is skipped where its kind runs."""

SKIPS: dict[tuple[str, str], str] = {}
