"""The database: tables, connections, locks, migrations, corruption, error translation."""
