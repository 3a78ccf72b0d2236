"""Lists that the tokeniser of `ptb` reads: which words keep their period, which open a sentence, which signs it knows.

Found by asking the COCO tools' tokeniser: every word of up to three letters, every word of half a million captions and
sentences, and every sign of the basic plane, one by one.
"""

# Keep their period, and let a word begin right behind it (etc.and).
ENDING_ABBREVIATIONS = "|".join(
    [
        "ala|ariz|calif|colo|conn|dak|fla|ga|ind|kan|ky|md|mich|minn|mo|mont|neb|nev|okla|penn|tenn|va|vt|wisc?|wyo",
        "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tues?|wed|thu|thurs|fri",
        "assn|bhd|bldg|blvd|bros|co|corp|cos|ct|inc|intl|ltd|plc|rd|rt|sq|sys|univ",
        "al|esq|est|etc|ext|jr|seq|sr|tel",
    ]
)
# Keep it unless a letter follows.
ABBREVIATIONS = "|".join(
    [
        "adm|atty|brig|capt|cmdr|col|comdr|cpl|det|drs?|ens|gen|govs?|hon|insp|lieut|lt|maj|messrs|mlle|mme|mrs?|ms",
        "msgr|pfc|ph\\.d|ph|pres|profs?|pvt|reps?|rev|sens?|sfc|sgt|spc|supt|treas|alex|jos|wm",
        "adj|adv|assoc|asst|ave|cf|cie|dept|ft|mt|natl|ste?|vs|mfg|mtg|pt[ey]",
    ]
)
CAPITAL_ABBREVIATIONS = "Ark|Az|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash"  # with a small letter they are words
NUMBERED = "art|ca|figs?|nos?|op|pp|prop"  # before a number
SENTENCE_OPENERS = (
    "A|About|According|After|An|As|At|But|He|Her|Here|However|If|In|It|Last|Many|More|Now|Once|One|Other|Our|She|Since"
    "|So|Some|Such|That|The|Their|Then|There|These|They|This|We|What|When|While|Yet|You"
)

# Vowel signs and points inside words: Hebrew, Arabic, Devanagari, Bengali, Gurmukhi, Gujarati, Tamil, Telugu, Thai.
WORD_SIGNS = (
    "\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0615-\u061a\u064b-\u065e\u0670\u06d6-\u06e4"
    "\u06e7-\u06ed\u0900-\u0903\u093c\u093e-\u094e\u0951-\u0955\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09cd\u09d7"
    "\u09e2\u09e3\u0a01-\u0a03\u0a3c-\u0a4f\u0a81-\u0a83\u0abc\u0abe-\u0acf\u0b82\u0bbe-\u0bcd\u0c01-\u0c03"
    "\u0c3e-\u0c56\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
)

# Not known, and taken for spaces: all beyond 16 bits (emoji), joiners, rare signs of money, marks of Chinese.
UNKNOWN = (
    "\U00010000-\U0010ffff\u0482\u0488\u0489\u060d-\u0613\u061c\u061d\u065f\u066b\u066c\u0970\u200b-\u200f"
    "\u2024\u2025\u2027\u202a-\u202e\u203c\u203d\u2043\u2045-\u205e\u2060-\u206f\u20a1-\u20a3\u20a5-\u20ab"
    "\u20ad-\u20ff\u2150-\u2152\u215f-\u2182\u2185-\u218f\u2e30-\u2fff\u3003\u3004\u3007-\u3011\u3013-\u3030"
    "\u3036-\u303a\u303d-\u3040\u3097-\u309c\u30a0\u31c0-\u31ef\u3200-\u33ff\ue000-\uf8ff\ufdfc-\ufe6f\ufeff\ufffd"
)
