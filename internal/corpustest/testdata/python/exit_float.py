raise SystemExit(1.5)
