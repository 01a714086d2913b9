"""What models and files of every kind ask of this machine: its devices, its hub, its disk."""
