"""What the exercises of each notebook are checked with: nb00.py for notebook 00, and so on.

The solutions are in here, too: try first, then look.
"""
