#include "models/chat/answer/chat_format.h"

#include <algorithm>

#include "models/chat/answer/values/literals.h"

namespace minfer {
namespace {

using answers::JsonCallSyntax;
using answers::NamedCallSyntax;
using answers::PythonicCallSyntax;
using answers::TaggedCallSyntax;

constexpr ReasoningMarkers kThink[] = {{"<think>", "</think>"}};
constexpr ReasoningMarkers kSeedThink[] = {{"<seed:think>", "</seed:think>"}};
constexpr ReasoningMarkers kKimiThink[] = {{"◁think▷", "◁/think▷"}};
constexpr ReasoningMarkers kMistralThink[] = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}};
constexpr ReasoningMarkers kGemmaThought[] = {{"<|channel>thought", "<channel|>"}};
constexpr ReasoningMarkers kGraniteThink[] = {{"<think>", "</think>"},
                                              {"Here is my thought process:", "Here is my response:"},
                                              {"Here's my thought process:", "Here's my response:"}};

constexpr CallOpening kHermes[] = {
    {.marker = "<tool_call>", .syntax = JsonCallSyntax{.close = "</tool_call>"}}};
constexpr CallOpening kNemotron[] = {
    {.marker = "<TOOLCALL>", .syntax = JsonCallSyntax{.close = "</TOOLCALL>"}}};
constexpr CallOpening kJamba[] = {
    {.marker = "<tool_calls>", .syntax = JsonCallSyntax{.close = "</tool_calls>"}}};
constexpr CallOpening kGranite[] = {
    {.marker = "<|tool_call|>", .syntax = JsonCallSyntax{}},
    {.marker = "<tool_call>", .syntax = JsonCallSyntax{.close = "</tool_call>"}}};
constexpr CallOpening kPhi4[] = {
    {.marker = "<|tool_call|>", .syntax = JsonCallSyntax{.close = "<|/tool_call|>"}},
    {.marker = "functools[", .syntax = JsonCallSyntax{.is_list = true}}};
constexpr CallOpening kLlama3[] = {{.marker = "<|python_tag|>", .syntax = JsonCallSyntax{}},
                                   {.first = '{', .syntax = JsonCallSyntax{.is_bare = true}}};

constexpr CallOpening kPythonic[] = {
    {.marker = "<|python_start|>",
     .syntax = PythonicCallSyntax{.close = "<|python_end|>", .needs_list = true}},
    {.first = '[', .syntax = PythonicCallSyntax{.needs_list = true, .is_bare = true}}};
constexpr CallOpening kLfm2[] = {
    {.marker = "<|tool_call_start|>", .syntax = PythonicCallSyntax{.close = "<|tool_call_end|>"}}};
constexpr CallOpening kOlmo3[] = {
    {.marker = "<function_calls>", .syntax = PythonicCallSyntax{.close = "</function_calls>"}}};
constexpr CallOpening kGemma3[] = {
    {.marker = "```tool_code\n", .syntax = PythonicCallSyntax{.close = "```", .is_bare = true}},
    {.marker = "```json\n", .syntax = JsonCallSyntax{.close = "```", .is_bare = true}}};

constexpr CallOpening kMistral[] = {
    {.marker = "[TOOL_CALLS]", .syntax = NamedCallSyntax{.separator = "[ARGS]", .may_be_list = true}}};
constexpr CallOpening kDeepSeek[] = {{.marker = "<｜tool▁calls▁begin｜>",
                                      .syntax = NamedCallSyntax{.call_open = "<｜tool▁call▁begin｜>",
                                                                .separator = "<｜tool▁sep｜>",
                                                                .call_close = "<｜tool▁call▁end｜>",
                                                                .close = "<｜tool▁calls▁end｜>"},
                                      .ends_reasoning = true}};
constexpr CallOpening kKimi[] = {{.marker = "<|tool_calls_section_begin|>",
                                  .syntax = NamedCallSyntax{.call_open = "<|tool_call_begin|>",
                                                            .separator = "<|tool_call_argument_begin|>",
                                                            .call_close = "<|tool_call_end|>",
                                                            .close = "<|tool_calls_section_end|>"},
                                  .ends_reasoning = true}};
constexpr CallOpening kFunctionGemma[] = {
    {.marker = "<start_function_call>",
     .syntax = NamedCallSyntax{.close = "<end_function_call>", .quote = "<escape>"}}};
constexpr CallOpening kGemma4[] = {
    {.marker = "<|tool_call>", .syntax = NamedCallSyntax{.close = "<tool_call|>", .quote = "<|\"|>"}}};

constexpr TaggedCallSyntax kQwenTags{.name_open = "<function=",
                                     .name_close = ">",
                                     .key_open = "<parameter=",
                                     .key_close = ">",
                                     .value_close = "</parameter>",
                                     .call_close = "</function>",
                                     .close = "</tool_call>",
                                     .has_line_ends = true};

constexpr TaggedCallSyntax qwen_tags(std::string_view close, bool begins_with_name) {
  TaggedCallSyntax syntax = kQwenTags;
  syntax.close = close;
  syntax.begins_with_name = begins_with_name;
  return syntax;
}

constexpr CallOpening kQwen3Coder[] = {{.marker = "<tool_call>", .syntax = qwen_tags("</tool_call>", false)},
                                       {.marker = "<function=", .syntax = qwen_tags("</tool_call>", true)}};
constexpr CallOpening kSeed[] = {
    {.marker = "<seed:tool_call>", .syntax = qwen_tags("</seed:tool_call>", false)}};
constexpr CallOpening kMiniMax[] = {{.marker = "<minimax:tool_call>",
                                     .syntax = TaggedCallSyntax{.name_open = "<invoke name=\"",
                                                                .name_close = "\">",
                                                                .key_open = "<parameter name=\"",
                                                                .key_close = "\">",
                                                                .value_close = "</parameter>",
                                                                .call_close = "</invoke>",
                                                                .close = "</minimax:tool_call>"}}};
constexpr CallOpening kGlm[] = {{.marker = "<tool_call>",
                                 .syntax = TaggedCallSyntax{.key_open = "<arg_key>",
                                                            .key_close = "</arg_key>",
                                                            .value_open = "<arg_value>",
                                                            .value_close = "</arg_value>",
                                                            .close = "</tool_call>"}}};

constexpr ChatFormat kFormats[] = {
    {.name = "hermes", .calls = kHermes, .reasoning = kThink},
    {.name = "qwen3_coder", .calls = kQwen3Coder, .reasoning = kThink},
    {.name = "llama3_json", .calls = kLlama3},
    {.name = "pythonic", .calls = kPythonic},
    {.name = "mistral", .calls = kMistral, .reasoning = kMistralThink},
    {.name = "gpt_oss", .is_harmony = true},
    {.name = "glm45", .calls = kGlm, .reasoning = kThink},
    {.name = "deepseek_v3", .calls = kDeepSeek, .reasoning = kThink},
    {.name = "kimi_k2", .calls = kKimi, .reasoning = kThink},
    {.name = "granite", .calls = kGranite, .reasoning = kGraniteThink},
    {.name = "gemma3", .calls = kGemma3},
    {.name = "functiongemma", .calls = kFunctionGemma},
    {.name = "gemma4", .calls = kGemma4, .reasoning = kGemmaThought},
    {.name = "seed_oss", .calls = kSeed, .reasoning = kSeedThink},
    {.name = "minimax_m2", .calls = kMiniMax, .reasoning = kThink},
    {.name = "phi4_mini", .calls = kPhi4, .reasoning = kThink},
    {.name = "lfm2", .calls = kLfm2, .reasoning = kThink},
    {.name = "olmo3", .calls = kOlmo3, .reasoning = kThink},
    {.name = "nemotron", .calls = kNemotron, .reasoning = kThink},
    {.name = "jamba", .calls = kJamba},
    // Thoughts alone.
    {.name = "think", .reasoning = kThink},
    {.name = "kimi_vl", .reasoning = kKimiThink},
};

/// A text that stands for a format.
struct FormatHint {
  std::string_view text;
  std::string_view format;
};

/// The names that vLLM uses.
constexpr FormatHint kAliases[] = {
    {"qwen", "hermes"},
    {"qwen3", "hermes"},
    {"qwen3_xml", "qwen3_coder"},
    {"llama4_json", "llama3_json"},
    {"llama4_pythonic", "pythonic"},
    {"openai", "gpt_oss"},
    {"openai_gptoss", "gpt_oss"},
    {"harmony", "gpt_oss"},
    {"glm4", "glm45"},
    {"glm4_moe", "glm45"},
    {"deepseek_v31", "deepseek_v3"},
    {"deepseek_r1", "deepseek_v3"},
    {"gemma", "gemma3"},
    {"phi4_mini_json", "phi4_mini"},
    {"nemotron_json", "nemotron"},
    {"minimax", "minimax_m2"},
};

// A template that has one of these texts asks for the format. The first that is found decides: what several families write stands behind
// what one writes.

constexpr FormatHint kCallTraits[] = {
    {"<|channel|>", "gpt_oss"},
    {"<arg_key>", "glm45"},
    {"<seed:tool_call>", "seed_oss"},
    {"<minimax:tool_call>", "minimax_m2"},
    {"<parameter=", "qwen3_coder"},
    {"<｜tool▁calls▁begin｜>", "deepseek_v3"},
    {"<|tool_calls_section_begin|>", "kimi_k2"},
    {"tool_declare", "kimi_k2"},
    {"[TOOL_CALLS]", "mistral"},
    {"<start_function_call>", "functiongemma"},
    {"<|tool_call>", "gemma4"},
    {"<|tool_call_start|>", "lfm2"},
    {"<function_calls>", "olmo3"},
    {"<TOOLCALL>", "nemotron"},
    {"functools", "phi4_mini"},
    {"<|/tool_call|>", "phi4_mini"},
    {"<|tool|>", "phi4_mini"},
    {"<|tool_call|>", "granite"},
    {"<tool_calls>", "jamba"},
    {"<tool_call>", "hermes"},
    {"<|python_start|>", "pythonic"},
    {"<|python_tag|>", "llama3_json"},
    {"\"parameters\": dictionary", "llama3_json"},
    {"tool_code", "gemma3"},
};

constexpr FormatHint kReasoningTraits[] = {
    {"<|channel|>", "gpt_oss"}, {"<seed:think>", "seed_oss"}, {"[THINK]", "mistral"},
    {"◁think▷", "kimi_vl"},     {"<|channel>", "gemma4"},     {"thought process:", "granite"},
    {"</think>", "think"},
};

const ChatFormat* detect(std::span<const FormatHint> traits, std::string_view chat_template) {
  const auto found = std::ranges::find_if(traits, [&](const FormatHint& trait) {
    return chat_template.find(trait.text) != std::string_view::npos;
  });
  return found == traits.end() ? nullptr : find_chat_format(found->format);
}

}  // namespace

const ChatFormat* find_chat_format(std::string_view name) {
  const auto alias = std::ranges::find(kAliases, name, &FormatHint::text);
  if (alias != std::end(kAliases)) name = alias->format;
  const auto found = std::ranges::find(kFormats, name, &ChatFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

std::vector<std::string> chat_format_names() {
  std::vector<std::string> names;
  for (const ChatFormat& format : kFormats)
    names.emplace_back(format.name);
  return names;
}

const ChatFormat* detect_chat_format(std::string_view chat_template) {
  const ChatFormat* format = detect(kCallTraits, chat_template);
  return format != nullptr ? format : detect_reasoning_format(chat_template);
}

const ChatFormat* detect_reasoning_format(std::string_view chat_template) {
  return detect(kReasoningTraits, chat_template);
}

std::string_view name(const ChatFormat& format) {
  return format.name;
}

bool has_calls(const ChatFormat& format) {
  return format.is_harmony || !format.calls.empty();
}

std::vector<std::string_view> markers(const ChatFormat& format) {
  if (format.is_harmony)
    return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"};
  std::vector<std::string_view> all;
  for (const CallOpening& call : format.calls) {
    if (!call.marker.empty()) all.push_back(call.marker);
  }
  for (const ReasoningMarkers& each : format.reasoning) {
    all.push_back(each.open);
    all.push_back(each.close);
  }
  return all;
}

bool ends_in_reasoning(const ChatFormat& format, std::string_view prompt) {
  prompt = answers::trimmed(prompt);
  if (format.is_harmony) return prompt.ends_with("<|channel|>analysis<|message|>");
  return std::any_of(format.reasoning.begin(), format.reasoning.end(),
                     [&](const ReasoningMarkers& each) { return prompt.ends_with(each.open); });
}

std::optional<size_t> find_open_thoughts(const ChatFormat& format, std::string_view text) {
  constexpr ReasoningMarkers kAnalysis[] = {{"<|channel|>analysis<|message|>", "<|end|>"}};
  text = answers::trimmed(text);
  const std::span<const ReasoningMarkers> markers = format.is_harmony ? kAnalysis : format.reasoning;
  for (size_t i = 0; i < markers.size(); ++i)
    if (text.starts_with(markers[i].open) && text.find(markers[i].close) == std::string_view::npos) return i;
  return std::nullopt;
}

namespace answers {

std::unique_ptr<CallReader> make_call_reader(const CallOpening& opening, const CallContext& context) {
  return std::visit([&](const auto& syntax) { return make_call_reader(syntax, context); }, opening.syntax);
}

}  // namespace answers
}  // namespace minfer
