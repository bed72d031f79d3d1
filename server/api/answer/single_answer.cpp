#include "server/api/answer/single_answer.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace minfer {
namespace {

class SingleAnswer final : public AnswerWriter {
 public:
  SingleAnswer(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context,
               bool streams)
      : choice_(request, identity, context), writer_(request.dialect->writer(choice_)), streams_(streams) {}

  void take(int32_t, RequestOutput output, std::string& events) override {
    if (finished_) return;
    if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
    const std::vector<ChatDelta> deltas = choice_.read(output);
    if (streams_ && !std::exchange(started_, true)) writer_->begin(events);
    for (const ChatDelta& delta : deltas)
      streams_ ? take(delta, events) : choice_.parts.add(delta);
    const std::optional<AnswerEnd>& end = choice_.reader.end();
    if (!end) return;
    finished_ = true;
    if (end != AnswerEnd::length) choice_.parts.end_last();
    if (!streams_) return;
    close_part(events);
    writer_->end(*end, events);
  }
  void append_error(const ApiError& error, std::string& events) override {
    if (!std::exchange(finished_, true)) writer_->fail(error, events);
  }
  std::string idle_event() const override { return writer_->idle_event(); }
  bool finished() const override { return finished_; }
  bool ended(int32_t) const override { return finished_; }
  std::string next_piece() override {
    written_ = true;
    return writer_->body(*choice_.reader.end());
  }
  bool written() const override { return written_; }
  std::string problem() const override { return choice_.reader.problem(); }

 private:
  void take(const ChatDelta& delta, std::string& events) {
    const bool begins = choice_.parts.begins_part(delta);
    if (begins) {
      choice_.parts.end_last();
      close_part(events);
    }
    choice_.parts.add(delta);
    if (delta.kind == ChatDelta::Kind::call_end) return close_part(events);
    if (begins) writer_->begin_part(events);
    part_open_ = true;
    if (delta.kind != ChatDelta::Kind::call_begin && !delta.text.empty())
      writer_->add_text(delta.text, events);
  }
  void close_part(std::string& events) {
    if (std::exchange(part_open_, false)) writer_->end_part(events);
  }

  SingleChoice choice_;
  const std::unique_ptr<SingleWriter> writer_;
  const bool streams_;
  bool started_ = false;
  bool part_open_ = false;
  bool finished_ = false;
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

std::unique_ptr<AnswerWriter> single_answer(const CompletionRequest& request,
                                            const ResponseIdentity& identity, const ApiContext& context,
                                            bool streams) {
  return std::make_unique<SingleAnswer>(request, identity, context, streams);
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
