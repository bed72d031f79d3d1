"""The pre-tokenisers of well-known model families, as their Hugging Face tokenizer.json states them.

`FAMILIES` maps a name of GGUF's tokenizer.ggml.pre to the steps that tokenizer.json lists under pre_tokenizer, the Unicode
normal form under normalizer and the model's ignore_merges. The last step of each turns bytes into printable characters
(ByteLevel). These are facts about published files, written down here as an independent check of minfer's own tables: do not
derive one from the other. "default" belongs to no family: it is what llama.cpp does when a file names nothing better.

Where llama.cpp's approximations depart from these, these hold, because models were trained with them. Found by running both:
llama.cpp applies no normal form; its DeepSeek LLM keeps runs of digits whole, and both its DeepSeek variants take spaces beyond
ASCII for ASCII ones (U+202F lies inside the class written for CJK); its tekken and gpt-4o end a word at a combining mark; its
contractions lack U+017F, which equals s when case is ignored. The others agreed on every text tried.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Family:
    source: str  # the repository whose tokenizer.json this is
    steps: list  # pre_tokenizer, in tokenizer.json's own form
    normal_form: str | None = None  # normalizer: "NFC" or none
    ignore_merges: bool = False  # a piece that is a token as a whole is that token, whatever its merges give


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex):
    """With use_regex, GPT-2's pattern splits first:
    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def digits(individual):
    """Cuts runs of numeric characters (\\p{N}) out, or with `individual` each by itself."""
    return {"type": "Digits", "individual_digits": individual}


# What Llama 3, Qwen 2 and GPT-4o share: contractions in any case, line ends kept with what precedes them.
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
SYMBOLS_AND_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Words that end where lower case turns to upper: upper* lower+ or upper+ lower*, where letters without case count as both.
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_WORD_1 = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+"
CASED_WORD_2 = r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"

# DeepSeek LLM's letters: Latin, Greek, Cyrillic and other scripts with case, listed by hand (Armenian and Georgian small
# letters are not among them), and its punctuation: ASCII, full width, quotation marks, ideographic space to full stop.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_PUNCTUATION = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

# Kimi's classes leave Han characters out; runs of those are words.
KIMI_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
DIGITS_THEN_GPT2 = [digits(individual=True), byte_level(use_regex=True)]

FAMILIES = {
    "default": Family(
        "llama.cpp, for a file that says default",
        [split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), byte_level(use_regex=False)],
    ),
    "gpt-2": Family("openai-community/gpt2", [byte_level(use_regex=True)]),
    "llama-bpe": Family(
        "meta-llama/Meta-Llama-3-8B",
        [split("|".join([CONTRACTION, WORD, r"\p{N}{1,3}", SYMBOLS, SPACES])), byte_level(use_regex=False)],
        ignore_merges=True,
    ),
    "qwen2": Family(
        "Qwen/Qwen2.5-7B",
        [split("|".join([CONTRACTION, WORD, r"\p{N}", SYMBOLS, SPACES])), byte_level(use_regex=False)],
        normal_form="NFC",
    ),
    "deepseek-llm": Family(
        "deepseek-ai/deepseek-llm-7b-base",
        [split("[\r\n]"), split(rf"\s?[{DEEPSEEK_LETTERS}]+"), split(rf"\s?[{DEEPSEEK_PUNCTUATION}]+"), split(r"\s+$"),
         split(DEEPSEEK_CJK), digits(individual=True), byte_level(use_regex=False)],
    ),
    "deepseek-coder": Family(
        "deepseek-ai/deepseek-coder-6.7b-base",
        [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_CJK), digits(individual=True),
         byte_level(use_regex=False)],
    ),
    "falcon": Family(
        "tiiuae/falcon-7b",
        [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(use_regex=True), digits(individual=False),
         split("[0-9][0-9][0-9]")],
    ),
    "starcoder": Family("bigcode/starcoder2-3b", DIGITS_THEN_GPT2),
    "refact": Family("smallcloudai/Refact-1_6-base", DIGITS_THEN_GPT2),
    "smollm": Family("HuggingFaceTB/SmolLM-135M", DIGITS_THEN_GPT2),
    "command-r": Family("CohereForAI/c4ai-command-r-v01", DIGITS_THEN_GPT2, normal_form="NFC"),
    "mpt": Family("mosaicml/mpt-7b, EleutherAI/gpt-neox-20b", [byte_level(use_regex=True)], normal_form="NFC"),
    "tekken": Family(
        "mistralai/Mistral-Nemo-Base-2407",
        [split("|".join([CASED_WORD_1, CASED_WORD_2, r"\p{N}", SYMBOLS_AND_SLASH, SPACES])), byte_level(use_regex=False)],
        ignore_merges=True,
    ),
    "gpt-4o": Family(
        "Xenova/gpt-4o, openai/gpt-oss-20b",
        [split("|".join([CASED_WORD_1 + CONTRACTION + "?", CASED_WORD_2 + CONTRACTION + "?", r"\p{N}{1,3}",
                         SYMBOLS_AND_SLASH, SPACES])),
         byte_level(use_regex=False)],
    ),
    "glm4": Family(
        "zai-org/GLM-4-9B-0414, zai-org/GLM-4.5",
        [split("|".join([CONTRACTION, WORD, r"\p{N}{1,3}", SYMBOLS, SPACES])), byte_level(use_regex=False)],
    ),
    "qwen35": Family(
        "Qwen/Qwen3.5-35B-A3B",
        [split("|".join([CONTRACTION, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", SPACES])),
         byte_level(use_regex=False)],
        normal_form="NFC",
    ),
    "deepseek-v3": Family(
        "deepseek-ai/DeepSeek-V3",
        [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
         split("|".join([r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
                         r" ?[\p{P}\p{S}]+[\r\n]*", SPACES])),
         byte_level(use_regex=False)],
    ),
    "kimi-k2": Family(  # tiktoken's: a piece that is a token is that token
        "moonshotai/Kimi-K2-Instruct, tokenization_kimi.py",
        [split("|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?" + KIMI_UPPER + "*" + KIMI_LOWER + "+" + CONTRACTION + "?",
                         r"[^\r\n\p{L}\p{N}]?" + KIMI_UPPER + "+" + KIMI_LOWER + "*" + CONTRACTION + "?", r"\p{N}{1,3}", SYMBOLS,
                         SPACES])),
         byte_level(use_regex=False)],
        ignore_merges=True,
    ),
    "seed-coder": Family(
        "ByteDance-Seed/Seed-OSS-36B-Instruct",
        [split("|".join([CONTRACTION, WORD, r"\p{N}{1}", r" ?[^\s\p{L}\p{N}\r\n]+", SPACES])), byte_level(use_regex=False)],
    ),
    "bailingmoe": Family(
        "inclusionAI/Ling-lite",
        [split("|".join([r"'(?i:[sdmt]|ll|ve|re)", r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]++[\r\n]*",
                         r"\s*[\r\n]|\s+(?!\S)|\s+"])),
         byte_level(use_regex=False)],
    ),
}
