# SPDX-License-Identifier: Apache-2.0
"""How many recurrent layers one group of a model's description may have."""

# A state is one position, which lies in one record of the log; with segments of 64 MiB that is 63.7 MiB.
GROUP_BYTES = 63 << 20


def fit(layers, layer_bytes):
    """Whether a group may have this many recurrent layers."""
    return layers * layer_bytes <= GROUP_BYTES
