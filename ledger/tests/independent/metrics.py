"""Reads metrics with the parser that Prometheus's own Python client has.

usage: metrics.py FILE

Prints one line for each sample, `name{label="value"} number`, labels in alphabetical order.
"""

import sys
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

for family in text_string_to_metric_families(Path(sys.argv[1]).read_text()):
    for sample in family.samples:
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}} {sample.value:g}")
