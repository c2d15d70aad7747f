# SPDX-License-Identifier: Apache-2.0
"""A connector of which one rank, once a file is there, leaves out the rows that it is to save, and says that it did not.
What is loaded then is what the slot had before, and no counter shows it."""

import os

import cairn.vllm
from cairn import _vllm_rank

FILE = "CAIRN_TEST_LEAVE_OUT"  # In the environment: its path.
RANK = "CAIRN_TEST_LEAVE_OUT_RANK"  # Which one; else the first.


class RankSide(_vllm_rank.RankSide):
    def _save(self, copy):
        if self.rank != int(os.environ.get(RANK, "0")) or not os.path.exists(os.environ[FILE]):
            super()._save(copy)


cairn.vllm.RankSide = RankSide
CairnConnector = cairn.vllm.CairnConnector
