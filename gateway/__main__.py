"""`python -m gateway` is `parlour`."""

from gateway.cli import main

raise SystemExit(main())
