"""The scripts behind `data/results/`: each measures, writes one JSON file and computes its checks."""
