"""Files that exporters wrote, with goldens of torch; ``fixtures/make_exporter_fixtures.py``."""
