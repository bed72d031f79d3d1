#include "models/chat/answer/delta_writer.h"

namespace minfer::answer {

void DeltaWriter::begin_push(std::vector<ChatDelta>& deltas) {
  deltas_ = &deltas;
  first_of_push_ = deltas.size();
}

void DeltaWriter::append(ChatDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (deltas_->size() == first_of_push_ || deltas_->back().kind != kind) {
    deltas_->push_back({.kind = kind, .call = kind == ChatDelta::Kind::call_arguments ? num_calls_ - 1 : -1});
  }
  deltas_->back().text += text;
}

void DeltaWriter::begin_call(std::string_view function) {
  deltas_->push_back(
      {.kind = ChatDelta::Kind::call_begin, .text = std::string(function), .call = num_calls_});
  ++num_calls_;
  settle();
  in_call_ = true;
}

void DeltaWriter::arguments(std::string_view text) {
  append(ChatDelta::Kind::call_arguments, text);
  if (!text.empty()) settle();
}

void DeltaWriter::end_call() {
  deltas_->push_back({.kind = ChatDelta::Kind::call_end, .call = num_calls_ - 1});
  settle();
  in_call_ = false;
}

}  // namespace minfer::answer
