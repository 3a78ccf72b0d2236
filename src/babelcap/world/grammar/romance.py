"""What French and Spanish share: two genders, size before and colour after the noun, and `de` in relations."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

Forms = dict[str, tuple[str, str, str, str]]  # masculine, feminine, masculine plural, feminine plural


class Romance(Grammar):
    nouns: ClassVar[dict[str, tuple[str, str, str]]]  # noun: gender, singular, plural
    colours: ClassVar[Forms]
    sizes: ClassVar[Forms]
    relations: ClassVar[dict[str, str]]

    @abstractmethod
    def determined(self, body: str, mention: Mention, features: Features) -> str:
        """The noun with its adjectives, behind its article or number and the preposition of the features."""

    def which(self, mention: Mention) -> int:
        """The place of the form that agrees with the mention."""
        return self.is_feminine(mention) + 2 * mention.plural

    def is_feminine(self, mention: Mention) -> bool:
        return self.nouns[mention.noun][0] == "f"

    def phrase(self, mention: Mention, features: Features) -> str:
        """Feature `de`: with the preposition de; `que`: after than."""
        which = self.which(mention)
        words = [self.nouns[mention.noun][1 + mention.plural]]
        if mention.size:
            words.insert(0, self.sizes[mention.size][which])
        if mention.colour:
            words.append(self.colours[mention.colour][which])
        return self.determined(" ".join(words), mention, features)

    def agree(self, mentions: Sequence[Mention], options: Sequence[str]) -> str:
        """Four options are masculine, feminine, and both in the plural."""
        return options[self.which(mentions[0])] if len(options) == 4 else super().agree(mentions, options)

    def predicate_colour(self, mention: Mention) -> str:
        return self.colours[mention.colour or ""][self.which(mention)]

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        return f"{self.relations[relation]} {self.phrase(mention, features | {'de'})}"
