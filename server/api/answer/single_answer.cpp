#include "server/api/answer/single_answer.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace minfer {
namespace {

class SingleStream final : public AnswerStream {
 public:
  SingleStream(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context)
      : choice_(request, identity, context), writer_(request.dialect->writer(choice_)) {}

  void append(int32_t, const RequestOutput& output, std::string& events) override {
    if (finished_) return;
    if (const std::optional<ApiError> failure = failure_of(output)) return append_error(*failure, events);
    const std::vector<ChatDelta> deltas = choice_.read(output);
    if (!std::exchange(started_, true)) writer_->begin(events);
    for (const ChatDelta& delta : deltas)
      take(delta, events);
    if (const std::optional<AnswerEnd>& end = choice_.reader.end()) {
      close_part(end != AnswerEnd::length, events);
      writer_->end(*end, events);
      finished_ = true;
    }
  }
  void append_error(const ApiError& error, std::string& events) override {
    if (!std::exchange(finished_, true)) writer_->fail(error, events);
  }
  std::string idle_event() const override { return writer_->idle_event(); }
  bool finished() const override { return finished_; }
  bool ended(int32_t) const override { return finished_; }
  std::string problem() const override { return choice_.reader.problem(); }

 private:
  void take(const ChatDelta& delta, std::string& events) {
    if (delta.kind == ChatDelta::Kind::call_end) return close_part(true, events);
    const bool begins = !part_open_ || choice_.parts.begins_part(delta);
    if (begins) close_part(true, events);
    choice_.parts.add(delta);
    if (begins) {
      writer_->begin_part(events);
      part_open_ = true;
    }
    if (delta.kind != ChatDelta::Kind::call_begin && !delta.text.empty())
      writer_->add_text(delta.text, events);
  }
  void close_part(bool whole, std::string& events) {
    if (!std::exchange(part_open_, false)) return;
    if (whole) choice_.parts.end_last();
    writer_->end_part(events);
  }

  SingleChoice choice_;
  const std::unique_ptr<SingleWriter> writer_;
  bool started_ = false;
  bool part_open_ = false;
  bool finished_ = false;
};

class SingleAnswer final : public WholeAnswer {
 public:
  SingleAnswer(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context)
      : choice_(request, identity, context), writer_(request.dialect->writer(choice_)) {}

  void add(int32_t, RequestOutput output) override {
    if (finished()) return;
    if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
    for (const ChatDelta& delta : choice_.read(output))
      choice_.parts.add(delta);
    if (finished() && choice_.reader.end() != AnswerEnd::length) choice_.parts.end_last();
  }
  bool finished() const override { return choice_.reader.end().has_value(); }
  bool ended(int32_t) const override { return finished(); }
  std::string next_piece() override {
    written_ = true;
    return writer_->body(*choice_.reader.end());
  }
  bool written() const override { return written_; }
  std::string problem() const override { return choice_.reader.problem(); }

 private:
  SingleChoice choice_;
  const std::unique_ptr<SingleWriter> writer_;
  bool written_ = false;
};

}  // namespace

std::vector<ChatDelta> SingleChoice::read(const RequestOutput& output) {
  usage.add(0, output);
  std::vector<ChatDelta> deltas;
  reader.read(output, deltas);
  if (reader.reasoning_tokens() >= 0) usage.set_reasoning(0, reader.reasoning_tokens());
  if (reader.end() == AnswerEnd::stop_string) stop_string = output.finish_detail;
  return deltas;
}

std::unique_ptr<AnswerStream> single_stream(const CompletionRequest& request,
                                            const ResponseIdentity& identity, const ApiContext& context) {
  return std::make_unique<SingleStream>(request, identity, context);
}

std::unique_ptr<WholeAnswer> single_answer(const CompletionRequest& request, const ResponseIdentity& identity,
                                           const ApiContext& context) {
  return std::make_unique<SingleAnswer>(request, identity, context);
}

void begin_event(std::string_view type, std::string& events) {
  events += "event: ";
  events += type;
  events += "\ndata: {\"type\":\"";
  events += type;
  events += '"';
}

std::string_view object_or_empty(std::string_view arguments) {
  const size_t begin = arguments.find_first_not_of(" \t\r\n");
  const bool is_object = begin != std::string_view::npos && arguments[begin] == '{';
  return is_object && nlohmann::json::accept(arguments) ? arguments : "{}";
}

}  // namespace minfer
