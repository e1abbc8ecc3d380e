"""What the daemon costs, as ratios against something else in the same run. `./dev bench`; results and method in docs/performance.md."""
