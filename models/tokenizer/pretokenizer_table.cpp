#include "models/tokenizer/pretokenizer.h"

namespace minfer {
namespace {

// The expressions are those of the models' own tokenizer.json files, the names those that llama.cpp's
// converter writes (src/llama-vocab.cpp). Two things differ in spelling and not in effect:
//  - quantifiers are possessive (++) where giving back characters could never help a match;
//  - \s is compiled as Unicode's White_Space property (see pretokenizer.cpp).

// GPT-2: words, numbers and runs of the rest, each with the space before it; a run of white space leaves its
// last character to the word behind it.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s+)";

constexpr std::string_view kGpt2Only[] = {kGpt2};
constexpr std::string_view kDigitThenGpt2[] = {R"(\p{N})", kGpt2};

// llama.cpp's fallback for files that name no pre-tokeniser.
constexpr std::string_view kDefault[] = {R"([\p{P}$+<=>^~|]++)", kGpt2, R"(\p{N}++)", R"([0-9][0-9][0-9])"};

// Falcon sees bytes when it cuts out digits, so only ASCII ones count.
constexpr std::string_view kFalcon[] = {R"([\p{P}$+<=>^~|`]++)", kGpt2, R"([0-9]++)", R"([0-9][0-9][0-9])"};

// cl100k and what descends from it: contractions in any case, words with one leading character of any kind,
// numbers of up to three digits (Qwen2: one), line ends apart.
#define MINFER_CL100K(digits)                                                                                \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}++|\p{N})" digits R"(| ?[^\s\p{L}\p{N}]++[\r\n]*+)" \
  R"(|\s*[\r\n]++|\s+(?!\S)|\s+)"
constexpr std::string_view kLlama3[] = {MINFER_CL100K("{1,3}")};
constexpr std::string_view kQwen2[] = {MINFER_CL100K("")};
#undef MINFER_CL100K

// Qwen3.5: combining marks belong to words.
constexpr std::string_view kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]++|\p{N}| ?[^\s\p{L}\p{M}\p{N}]++[\r\n]*+)"
    R"(|\s*[\r\n]++|\s+(?!\S)|\s+)"};

// Seed: line ends are no part of a run of symbols.
constexpr std::string_view kSeed[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}\r\n]++)"
    R"(|\s*[\r\n]++|\s+(?!\S)|\s+)"};

// Bailing (Ling, Ring): one line end at a time; a leading character is never given back.
constexpr std::string_view kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)"};

// o200k: a word ends where lower case turns into upper case.
#define MINFER_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define MINFER_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MINFER_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MINFER_O200K(contraction, digits)                                                     \
  R"([^\r\n\p{L}\p{N}]?)" MINFER_UPPER "*" MINFER_LOWER "++" contraction                      \
  R"(|[^\r\n\p{L}\p{N}]?)" MINFER_UPPER "++" MINFER_LOWER "*+" contraction R"(|\p{N})" digits \
  R"(| ?[^\s\p{L}\p{N}]++[\r\n/]*+|\s*[\r\n]++|\s+(?!\S)|\s+)"
constexpr std::string_view kGpt4o[] = {MINFER_O200K(MINFER_CONTRACTION, "{1,3}")};
constexpr std::string_view kTekken[] = {MINFER_O200K("", "")};
#undef MINFER_O200K
#undef MINFER_LOWER
#undef MINFER_UPPER

// Kimi K2: as o200k, but runs of Han characters are words. The classes of cased words are written as what is not in them, because PCRE2
// cannot take one class off another; its \p{Han} alone would mean Script_Extensions.
#define MINFER_UPPER R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define MINFER_LOWER R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
constexpr std::string_view kKimiK2[] = {
    R"(\p{sc:Han}++)"
    R"(|[^\r\n\p{L}\p{N}]?)" MINFER_UPPER "*" MINFER_LOWER "++" MINFER_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?)" MINFER_UPPER "++" MINFER_LOWER "*+" MINFER_CONTRACTION
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]++|\s+(?!\S)|\s+)"};
#undef MINFER_LOWER
#undef MINFER_UPPER
#undef MINFER_CONTRACTION

// Letters with case, as DeepSeek's tokeniser lists them. It leaves out Georgian Mkhedruli and Cyrillic Extended-C, which \p{L&} has.
#define MINFER_CASED_LETTERS                                                                                \
  R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"                   \
  R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"             \
  R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"                   \
  R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"                \
  R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"                \
  R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D})"         \
  R"(\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"        \
  R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"                 \
  R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})" \
  R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B})"                  \
  R"(\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B})"                 \
  R"(\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"                \
  R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"            \
  R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"                         \
  R"(\x{1E900}-\x{1E943})"
// CJK ideographs, the scripts from U+0800 up to them, and Hangul.
#define MINFER_CJK R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]++)"
constexpr std::string_view kDeepSeekLlm[] = {
    R"([\r\n])",
    R"(\s?[)" MINFER_CASED_LETTERS R"(]++)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]++)",
    // The lookbehind changes nothing but the time: without it every position of a run of spaces that does not
    // end the text is tried, which is quadratic.
    R"((?<!\s)\s++$)",
    MINFER_CJK,
    R"(\p{N})",
};
constexpr std::string_view kDeepSeekCoder[] = {R"([\r\n])", R"(\s?\p{L}++)", R"(\s?\p{P}++)", MINFER_CJK,
                                               R"(\p{N})"};
#undef MINFER_CJK
#undef MINFER_CASED_LETTERS

constexpr std::string_view kDeepSeekV3[] = {
    R"(\p{N}{1,3})",
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]++)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]++|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]++)"
    R"(| ?[\p{P}\p{S}]++[\r\n]*+|\s*[\r\n]++|\s+(?!\S)|\s+)",
};

constexpr PretokenizerRule kRules[] = {
    {"default", kDefault, {}},
    {"gpt-2 phi-2 exaone4 trillion granite-docling", kGpt2Only, {}},
    {"mpt olmo", kGpt2Only, {.nfc = true}},
    {"starcoder refact smollm codeshell exaone minerva-7b", kDigitThenGpt2, {}},
    {"command-r", kDigitThenGpt2, {.nfc = true}},
    {"falcon", kFalcon, {}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 pixtral midm-2.0",
     kLlama3,
     {.add_bos = true, .ignore_merges = true}},
    {"dbrx smaug-bpe chatglm-bpe glm4", kLlama3, {}},
    {"qwen2 deepseek-r1-qwen megrez", kQwen2, {.nfc = true}},
    {"qwen35", kQwen35, {.nfc = true}},
    {"stablelm2 hunyuan", kQwen2, {}},
    {"seed-coder", kSeed, {}},
    {"bailingmoe bailingmoe2 llada-moe", kBailing, {}},
    {"gpt-4o llama4 kanana2 minimax-m2", kGpt4o, {}},
    {"kimi-k2", kKimiK2, {.ignore_merges = true}},
    {"tekken", kTekken, {.add_bos = true, .ignore_merges = true}},
    {"deepseek-llm", kDeepSeekLlm, {}},
    {"deepseek-coder", kDeepSeekCoder, {}},
    {"deepseek-v3 hunyuan-dense", kDeepSeekV3, {}},
};

}  // namespace

std::span<const PretokenizerRule> pretokenizer_rules() {
  return kRules;
}

}  // namespace minfer
