"""The database: tables, connections, locks, migrations, and what damage and errors look like."""
