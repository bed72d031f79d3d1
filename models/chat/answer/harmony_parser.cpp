#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answers {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
/// Markers that end a body: the first three belong to it, the others begin the next header.
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart, kChannel};
constexpr int32_t kNumOwnEnds = 3;
constexpr size_t kMaxHeaderBytes = 512;

/// The word behind `key` in a header.
std::string_view field(std::string_view header, std::string_view key) {
  const size_t begin = header.find(key);
  if (begin == std::string_view::npos) return {};
  const std::string_view word = trimmed(header.substr(begin + key.size()));
  return word.substr(0, word.find_first_of(" \t\r\n<"));
}

/// Parses answers of gpt-oss (OpenAI's Harmony format): messages
/// `<|start|>assistant<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>BODY<|end|>`. The prompt has begun the first message.
/// The channel analysis holds thoughts, a message with a recipient is a call, all else is content. A message that should not be found
/// (finds_reasoning, finds_calls) is content with its markers.
class HarmonyParser final : public ChatAnswerParser {
 public:
  explicit HarmonyParser(const ChatAnswerOptions& options)
      : options_(options),
        tools_(options_.tools.get()),
        header_begin_({"to=", kStart, kChannel, kMessage}),
        headers_({kStart, kChannel}),
        ends_({std::begin(kEnds), std::end(kEnds)}) {
    if (!options_.begins_in_reasoning && !options_.open_thoughts) return;
    state_ = &Self::take_body;
    body_ = options_.finds_reasoning ? Body::reasoning : Body::as_written;
  }

  void end() override {
    if (state_ == &Self::take_between) {
      const bool is_blank = header_begin_.text().size() == header_begin_.num_spaces();
      if (!is_blank || !has_message_) out_.content(header_begin_.text());
    } else if (state_ == &Self::take_text) {
      out_.content(headers_.held());
    } else if (state_ == &Self::take_header) {
      note_problem("header of a message cut off");
      out_.content(header_);
    } else {
      // Bytes held back from a call's end do not belong to the arguments.
      const std::string held = body_ == Body::call && is_whole_ ? std::string() : ends_.held();
      for (const char h : held)
        give_body(h);
      end_body();
    }
  }

 private:
  using Self = HarmonyParser;
  enum class Body { content, reasoning, call, as_written };

  void take(char c) override { (this->*state_)(c); }

  /// White space, or what may become the beginning of a header.
  void take_between(char c) {
    const int32_t found = header_begin_.push(c);
    if (found == ExpectedLiteral::kMore) return;
    std::string read = header_begin_.text();
    if (found == ExpectedLiteral::kNone) read += c;
    header_begin_.clear();
    header_.clear();
    state_ = found >= 0 ? &Self::take_header : &Self::take_text;
    for (const char r : read)
      take(r);
  }

  /// Outside of messages.
  void take_text(char c) {
    std::string passed;
    const int32_t found = headers_.push(c, passed);
    out_.content(passed);
    if (found == MarkerFinder::kNone) return;
    header_ = found == 0 ? kStart : kChannel;
    state_ = &Self::take_header;
  }

  void take_header(char c) {
    header_ += c;
    if (header_.ends_with(kMessage)) return begin_body();
    if (header_.size() < kMaxHeaderBytes) return;
    note_problem(fmt::format("{} bytes of a message's header without {}", kMaxHeaderBytes, kMessage));
    out_.content(header_);
    state_ = &Self::take_text;
  }

  void take_body(char c) {
    std::string passed;
    const int32_t found = ends_.push(c, passed);
    for (const char p : passed)
      give_body(p);
    if (found == MarkerFinder::kNone) return;
    end_body();
    if (found < kNumOwnEnds) {
      if (body_ == Body::as_written) out_.content(kEnds[found]);
      state_ = &Self::take_between;
    } else {
      header_ = kEnds[found];
      state_ = &Self::take_header;
    }
  }

  void begin_body() {
    state_ = &Self::take_body;
    has_message_ = true;
    written_ = header_;
    arguments_ = {};
    is_whole_ = false;
    const std::string_view recipient = field(header_, "to=");
    constexpr std::string_view kFunctions = "functions.";
    function_ = recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
    // Tools that OpenAI built in have no prefix.
    const bool is_function = !function_.empty() && (function_.size() != recipient.size() ||
                                                    !tools_.is_known() || tools_.has_function(function_));
    if (!recipient.empty()) {
      body_ = is_function && options_.finds_calls ? Body::call : Body::as_written;
    } else if (field(header_, kChannel) == "analysis") {
      body_ = options_.finds_reasoning ? Body::reasoning : Body::as_written;
    } else {
      body_ = Body::content;
    }
    if (body_ == Body::as_written) out_.content(written_);
  }

  void give_body(char c) {
    const std::string_view text(&c, 1);
    if (body_ == Body::reasoning) return out_.reasoning(text);
    if (body_ != Body::call) return out_.content(text);
    if (!is_whole_) return give_arguments(c);
    if (is_space(c)) return;
    note_problem("text behind the arguments");
    body_ = Body::content;
    out_.content(text);
  }

  void give_arguments(char c) {
    std::string json;
    const ReadStep step = arguments_.push(c, json);
    if (step == ReadStep::failed) {
      give_up_call("arguments that are no JSON object");
      out_.content(std::string_view(&c, 1));
      return;
    }
    written_ += c;
    if (json.empty()) return;
    if (!out_.in_call()) out_.begin_call(function_);
    out_.arguments(json);
    written_.clear();
    is_whole_ = step == ReadStep::done;
    if (is_whole_) out_.end_call();
  }

  void end_body() {
    if (body_ == Body::call && !is_whole_) give_up_call("cut off");
  }

  void give_up_call(std::string_view problem) {
    note_problem(problem);
    out_.content(written_);
    out_.cut_call();
    body_ = Body::as_written;
  }

  const ChatAnswerOptions options_;
  const ToolTypes tools_;
  void (Self::*state_)(char) = &Self::take_between;  ///< takes the next byte
  Body body_ = Body::content;
  ExpectedLiteral header_begin_;
  MarkerFinder headers_;  ///< within text
  MarkerFinder ends_;     ///< of a body
  std::string header_;
  std::string function_;  ///< of the call whose body this is
  std::string written_;   ///< of a call, since something of it went out: content if it goes on no more
  JsonArguments arguments_;
  bool is_whole_ = false;  ///< the arguments have ended
  bool has_message_ = false;
};

}  // namespace

std::unique_ptr<ChatAnswerParser> make_harmony_parser(const ChatAnswerOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace minfer::answers
