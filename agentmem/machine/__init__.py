"""The machine: devices, model hub, files, logs, forks."""
