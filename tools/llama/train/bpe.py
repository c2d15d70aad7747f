# SPDX-License-Identifier: Apache-2.0
"""Byte-pair encoding in the llama2.c tokenizer format.

Tokens: <unk>, <s>, </s>, 256 byte tokens, single characters, merges. The score of a merged piece is
minus its rank and that of a character lies below every merge, so the greedy merge of llama2.c
("join the adjacent pair whose concatenation has the best score") is the encoding. The same rule
encodes the training text here. Pieces never cross a boundary of _PIECE, hence merging word by word
equals merging the whole text.
"""

import collections
import re
import struct

BOS = 1
_FIRST_PIECE = 3 + 256
_PIECE = re.compile(r" ?[A-Za-z]+| ?[^A-Za-z\s]|\s")


class Tokenizer:
    def __init__(self, pieces):
        byte_pieces = [b"<0x%02X>" % i for i in range(256)]
        self.pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + byte_pieces + pieces
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if i >= _FIRST_PIECE}
        self.scores = [0.0] * _FIRST_PIECE
        merged = 0
        for piece in pieces:
            if len(piece) == 1:
                self.scores.append(-1e6)
            else:
                self.scores.append(-float(merged))
                merged += 1
        self._cache = {}

    def _encode_piece(self, text):
        if text in self._cache:
            return self._cache[text]
        ids = []
        for char in text:
            raw = char.encode()
            ids += [self.ids[raw]] if raw in self.ids else [byte + 3 for byte in raw]
        while True:
            best = None
            for i in range(len(ids) - 1):
                merged = self.ids.get(self.pieces[ids[i]] + self.pieces[ids[i + 1]])
                if merged is None:
                    continue
                if best is None or self.scores[merged] > self.scores[best[1]]:
                    best = (i, merged)
            if best is None:
                break
            ids[best[0]:best[0] + 2] = [best[1]]
        self._cache[text] = ids
        return ids

    def encode(self, text, bos):
        """As llama2.c: with a space before the text, so that its first word is like any other."""
        ids = [BOS] if bos else []
        for piece in _PIECE.findall(" " + text if text else ""):
            ids += self._encode_piece(piece)
        return ids

    def encode_continuation(self, text):
        """Without the space: text that follows other text."""
        return [i for piece in _PIECE.findall(text) for i in self._encode_piece(piece)]

    def save(self, path):
        with open(path, "wb") as file:
            file.write(struct.pack("<i", max(map(len, self.pieces))))
            for piece, score in zip(self.pieces, self.scores):
                file.write(struct.pack("<fi", score, len(piece)) + piece)


def train(text, vocab_size):
    """Deterministic: ties between equally frequent pairs go to the pair that sorts first."""
    words = collections.Counter(_PIECE.findall(text))
    symbols = {word: [char.encode() for char in word] for word in words}
    pieces = sorted({char for parts in symbols.values() for char in parts})
    counts = collections.Counter()
    where = collections.defaultdict(set)
    for word, parts in symbols.items():
        for pair in zip(parts, parts[1:]):
            counts[pair] += words[word]
            where[pair].add(word)
    while len(pieces) < vocab_size - _FIRST_PIECE:
        pair = min(counts, key=lambda p: (-counts[p], p))
        joined = pair[0] + pair[1]
        if joined not in pieces:
            pieces.append(joined)
        for word in sorted(where[pair]):
            parts = symbols[word]
            for old in zip(parts, parts[1:]):
                counts[old] -= words[word]
            i, joined_parts = 0, []
            while i < len(parts):
                if tuple(parts[i:i + 2]) == pair:
                    joined_parts.append(joined)
                    i += 2
                else:
                    joined_parts.append(parts[i])
                    i += 1
            symbols[word] = joined_parts
            for new in zip(joined_parts, joined_parts[1:]):
                counts[new] += words[word]
                where[new].add(word)
        del counts[pair], where[pair]
    return Tokenizer(pieces)
