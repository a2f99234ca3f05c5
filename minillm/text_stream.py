"""Text from tokens as they come: whole characters only, and never past a stop string."""

from collections.abc import Sequence

BROKEN = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet


class TextStream:
    """`push` tokens, get the text that is safe to show; `finish` gives the rest.

    A token may end inside a multi-byte character, and text may end inside a possible stop string: both
    are held back until the next token decides.
    """

    def __init__(self, tokenizer, stop: Sequence[str] = ()):
        self.tokenizer, self.stop = tokenizer, stop
        self.ids: list[int] = []
        self.shown_ids = 0  # tokens whose text is in `self.text`
        self.context_ids = 0  # where decoding starts: some decoders look at the token before
        self.text = ""  # decoded so far
        self.shown = 0  # characters given out
        self.stopped = False  # a stop string was met; `text` ends before it

    def push(self, token_id: int) -> str:
        """Add a token; return new text that can be shown."""
        self.ids.append(token_id)
        new = self._decode_new()
        return "" if new.endswith(BROKEN) else self._extend(new, hold=True)

    def finish(self) -> str:
        """No more tokens: return all that was held back, broken bytes included."""
        return "" if self.stopped else self._extend(self._decode_new(), hold=False)

    def _decode_new(self) -> str:
        before = self.tokenizer.decode(self.ids[self.context_ids : self.shown_ids])
        return self.tokenizer.decode(self.ids[self.context_ids :])[len(before) :]

    def _extend(self, new: str, hold: bool) -> str:
        # A stop string may begin in text that came earlier, at most its length − 1 characters back.
        search_from = max(0, len(self.text) - max(map(len, self.stop), default=0) + 1)
        self.text += new
        self.context_ids, self.shown_ids = self.shown_ids, len(self.ids)
        found = [at for s in self.stop if (at := self.text.find(s, search_from)) >= 0]
        if found:
            self.stopped = True
            self.text = self.text[: min(found)]
        end = len(self.text) - (self._possible_stop() if hold and not self.stopped else 0)
        fresh, self.shown = self.text[self.shown : end], max(self.shown, end)
        return fresh

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        lengths = (n for s in self.stop for n in range(1, len(s)) if self.text.endswith(s[:n]))
        return max(lengths, default=0)
