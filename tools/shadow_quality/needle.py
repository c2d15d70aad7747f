# SPDX-License-Identifier: Apache-2.0
"""An access code in the middle of a text, and the question for it at the end."""

import dataclasses

_FACT = " The access code of the vault is 7419. "
_QUESTION = "\n\nThe access code of the vault is"
_ANSWER = " 7419"


@dataclasses.dataclass
class Needle:
    """The two ways of asking: a question that is part of the prompt, and one that comes as steps."""

    prompt: list  # Ids of the text with the fact, without the question.
    question: list
    answer: list  # A space, and four digits.

    def asked(self, in_prompt):
        """(prompt, steps, how many of the last steps predict a digit, digits)"""
        digits = len(self.answer) - 1
        ids = self.question + self.answer
        split = len(self.question) - 1 if in_prompt else 0
        return self.prompt + ids[:split], ids[split:-1], digits, self.answer[1:]


def hide(ids, depth, encode, tokens):
    """The Needle at this depth of a text, with `tokens` tokens in all before the question. At the end of a sentence."""
    fact = encode(_FACT)
    kept = ids[:tokens - len(fact)]
    stop = encode(".")[0]
    at = next((i + 1 for i in range(int(depth * len(kept)), len(kept)) if kept[i] == stop), int(depth * len(kept)))
    return Needle(kept[:at] + fact + kept[at:], encode(_QUESTION), encode(_ANSWER))
