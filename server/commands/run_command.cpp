#include <algorithm>
#include <cctype>
#include <iostream>

#include <fmt/color.h>
#include <nlohmann/json.hpp>

#include "models/gguf/printable.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/token_grammar.h"
#include "server/commands/args/engine_args.h"
#include "server/commands/commands.h"
#include "server/serving/profile/profile_session.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

Expr add_schema_file(GrammarBuilder& builder, const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    return add_json_schema(builder, nlohmann::ordered_json::parse(text), JsonStyle::free);
  } catch (const nlohmann::json::parse_error& error) {
    fail<FileError>("{}: not JSON: byte {}", path, error.byte);
  }
}

/// The form that an answer must have.
class GrammarArgs {
 public:
  void add_to(CLI::App& command) {
    auto* group = command.add_option_group(
        "Structured output",
        "form that the answer must have; an answer that is cut off before its end is an error");
    const auto add = [&](const char* name, Expr (*build)(GrammarBuilder&, const std::string&),
                         const char* description) {
      const auto take = [this, build](const std::string& text) { from_ = text, build_ = build; };
      group->add_option_function<std::string>(name, take, description);
    };
    add("--json-schema", add_schema_file, "file with a JSON schema that the answer must satisfy");
    const auto from_file = [](GrammarBuilder& builder, const std::string& path) {
      return add_gbnf(builder, read_text_file(path));
    };
    add("--grammar", from_file, "file with a grammar in GBNF, as llama.cpp writes it");
    const auto from_text = [](GrammarBuilder& builder, const std::string& regex) {
      return add_regex(builder, regex);
    };
    add("--regex", from_text, "a regular expression that the whole answer must match");
    group->require_option(0, 1);
  }

  /// Null if none was asked for. `vocab_size`: the model's. Throws FileError naming the file if it cannot be honoured.
  std::shared_ptr<TokenGrammar> compile(const Tokenizer& tokenizer, int32_t vocab_size) const {
    if (from_.empty()) return nullptr;
    GrammarBuilder builder;
    try {
      const Expr root = build_(builder, from_);
      return std::make_shared<TokenGrammar>(compile_grammar(builder, root),
                                            std::make_shared<const TokenTrie>(tokenizer, vocab_size));
    } catch (const GrammarError& error) {
      fail<FileError>("{}: {}", from_, error.what());
    }
  }

 private:
  std::string from_;
  Expr (*build_)(GrammarBuilder&, const std::string&) = nullptr;
};

struct RunArgs {
  ModelAndText input;
  EngineArgs engine;
  SamplingArgs sampling;
  GrammarArgs grammar;
  ProfileArgs profile;
  std::string prompt;  ///< empty: from standard input
  std::string system;
  ChatArgs chat_template;
  bool chat = false;
  bool quiet = false;
};

constexpr std::string_view kChatHelp =
    "/help shows this; /exit or the end of the input ends the conversation. Every other line is a "
    "message\n(to send a single word that begins with a slash, put a space in front)\n";

/// True for one word behind a slash. A path, or a sentence that begins with a slash, is a message.
bool is_command(std::string_view line) {
  return line.size() > 1 && line.front() == '/' && std::ranges::all_of(line.substr(1), [](unsigned char c) {
           return std::isalpha(c) != 0 || c == '?';
         });
}

class Runner {
 public:
  explicit Runner(const RunArgs& args)
      : args_(args),
        engine_(args.engine.make_engine()),
        profile_(args.profile, *engine_),
        params_(args.sampling.params),
        grammar_(args.grammar.compile(engine_->tokenizer(), engine_->config().vocab_size)) {
    if (params_.max_tokens == 0) params_.max_tokens = engine_->options().max_model_len;
  }

  void complete(const std::string& prompt) { generate(engine_->tokenizer().encode(prompt)); }

  void converse() {
    const ChatTemplate chat_template =
        args_.chat_template.open(engine_->model().chat_template(), engine_->tokenizer());
    ChatInput chat;
    if (!args_.system.empty()) chat.add_message("system", args_.system);
    if (is_terminal(stdin) && !args_.quiet) fmt::print(stderr, "{}", kChatHelp);
    for (std::string line = args_.prompt; !line.empty() || read_line(line); line.clear()) {
      chat.add_message("user", line);
      const RenderedChat prompt = chat_template.render(chat);
      if (num_requests_ == 0 && !prompt.ignored.empty())
        fmt::print(stderr, "the system message is ignored: {} does not use it\n", chat_template.name());
      chat.add_message("assistant", generate(engine_->tokenizer().encode_parts(prompt.parts, false)));
      if (!is_terminal(stdin) && !args_.prompt.empty()) return;
    }
  }

  /// Throws Error if an answer does not have the form that was asked for.
  void check_whole() const {
    if (tokens_of_cut_ == 0) return;
    fail(
        "the answer is cut off after {} tokens, before it satisfies --json-schema, --grammar or --regex: "
        "raise --max-tokens, or --max-model-len if the context is full",
        tokens_of_cut_);
  }

 private:
  bool read_line(std::string& line) const {
    while (!watch_.interrupted()) {
      if (is_terminal(stdin)) fmt::print(stderr, fmt::emphasis::bold, "> ");
      if (!std::getline(std::cin, line)) return false;
      if (line == "/exit") return false;
      if (line == "/help") {
        fmt::print(stderr, "{}", kChatHelp);
      } else if (is_command(line)) {
        fmt::print(stderr, "{}: no such command\n{}", printable(line), kChatHelp);
      } else if (!line.empty()) {
        return true;
      }
    }
    return false;
  }

  /// Streams one generation to standard output and returns its text.
  std::string generate(const std::vector<TokenId>& prompt) {
    engine_->submit({.id = fmt::format("run-{}", num_requests_++),
                     .prompt = prompt,
                     .sampling = params_,
                     .grammar = grammar_});
    std::string text;
    RequestOutput last;
    while (engine_->has_work()) {
      if (watch_.interrupted()) engine_->cancel(fmt::format("run-{}", num_requests_ - 1));
      for (const RequestOutput& output : engine_->step()) {
        print_output(output.text);
        text += output.text;
        last = output;
      }
    }
    print_output("\n");
    if (last.finish && is_failure(*last.finish)) fail("{}", last.finish_detail);
    if (last.finish == FinishReason::length && grammar_) {
      GrammarMatcher matcher(grammar_);
      if (!matcher.accept_bytes(text) || !matcher.may_end()) tokens_of_cut_ = last.output_tokens;
    }
    if (!args_.quiet) print_closing_line(last);
    return text;
  }

  static void print_closing_line(const RequestOutput& last) {
    if (last.output_tokens == 0) return;
    const double ttft_ms = static_cast<double>(last.first_token_ns - last.arrival_ns) * 1e-6;
    const double decode_s = static_cast<double>(last.last_token_ns - last.first_token_ns) * 1e-9;
    std::string line = fmt::format(
        "[{} prompt tokens, {} cached; {} generated ({}); time to first token {:.1f} ms", last.prompt_tokens,
        last.cached_tokens, last.output_tokens, name(last.finish.value_or(FinishReason::stop)), ttft_ms);
    if (decode_s > 0.0) line += fmt::format("; {:.1f} tokens/s", (last.output_tokens - 1) / decode_s);
    if (const SpeculationCounts& drafted = last.drafted; drafted.drafts > 0) {
      line += fmt::format(
          "; {} of {} draft tokens accepted, {:.2f} tokens a check", drafted.accepted_tokens,
          drafted.draft_tokens,
          1.0 + static_cast<double>(drafted.accepted_tokens) / static_cast<double>(drafted.drafts));
    }
    line += "]\n";
    is_terminal(stderr) ? fmt::print(stderr, fmt::emphasis::faint, "{}", line)
                        : fmt::print(stderr, "{}", line);
  }

  const RunArgs& args_;
  std::unique_ptr<Engine> engine_;
  ProfileSession profile_;
  SamplingParams params_;
  std::shared_ptr<TokenGrammar> grammar_;  ///< of each answer; null: free
  InterruptWatch watch_;                   ///< the first Ctrl-C ends the generation in progress in order
  int32_t num_requests_ = 0;
  int32_t tokens_of_cut_ = 0;  ///< of the last answer that was cut off
};

/// All of standard input, less the newline that ends a piped line: a prompt goes on where it stops.
std::string read_piped_prompt() {
  if (is_terminal(stdin)) fail("run: give a PROMPT, pipe one in, or use --chat");
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt, streamed to the terminal");
  auto args = std::make_shared<RunArgs>();
  args->input.add_to(*command, "PROMPT",
                     "the text to continue, or with --chat the first message (default: standard input)");
  command->add_flag("--chat", args->chat,
                    "hold a conversation: each line of standard input is a message, until the input ends or "
                    "a line is /exit (/help lists the commands)");
  command->add_option("--system", args->system, "system message of the conversation")->needs("--chat");
  args->chat_template.add_to(*command)->needs("--chat");
  command->add_flag("-q,--quiet", args->quiet, "print no closing line with times");
  args->engine.add_device_options(*command);
  args->engine.add_serving_options(*command);
  args->sampling.add_to(*command);
  args->grammar.add_to(*command);
  args->profile.add_to(*command);
  command->footer(
      "Examples:\n"
      "  minfer run \"Once upon a time\" -n 60 --temperature 0.8\n"
      "  minfer run llama.gguf \"Once upon a time\" -n 20\n"
      "  minfer run llama.gguf --chat \"What is 23 plus 45?\" </dev/null\n"
      "  minfer run \"The answer is \" --regex \"(yes|no), [a-z ]{3,40}[.]\"\n"
      "  minfer run synthetic:tiny:q8_0 \"Once upon a time\" -n 20\n"
      "  echo \"Once upon a time\" | minfer run -n 20 --quiet");
  command->callback([args] {
    args->input.resolve();
    args->engine.model = args->input.model();
    args->prompt = args->input.text().value_or("");
    const std::string prompt = args->chat || !args->prompt.empty() ? args->prompt : read_piped_prompt();
    Runner runner(*args);
    args->chat ? runner.converse() : runner.complete(prompt);
    args->engine.check_processes();
    runner.check_whole();
  });
}

}  // namespace minfer
