#include "profiling/chrome_trace/trace_events.h"

namespace minfer {
namespace {

constexpr size_t kPieceBytes = 64u << 10;
constexpr std::string_view kFlow = "ac2g";  // "asynchronous CPU to GPU": PyTorch's profiler has this name

}  // namespace

void TraceEvents::open_file(std::string_view head) {
  out_ += head;
  json_.key("traceEvents").open('[');
}

void TraceEvents::close_file() {
  out_ += brackets_;
  out_ += "\n]}\n";
  write_(out_);
  out_.clear();
}

JsonText& TraceEvents::open_event(std::string_view kind, std::string_view name, Track track) {
  out_ += brackets_;
  if (out_.size() >= kPieceBytes) {
    write_(out_);
    out_.clear();
  }
  out_ += brackets_.empty() ? "\n" : ",\n";
  brackets_ = "}";
  json_.open('{').field("ph", kind).field("name", name);
  return json_.field("pid", track.process).field("tid", track.thread);
}

JsonText& TraceEvents::open_args() {
  brackets_ = "}}";
  return json_.key("args").open('{');
}

void TraceEvents::name_process(int32_t process, std::string_view name) {
  open_event("M", "process_name", {process, 0});
  open_args().field("name", name);
  open_event("M", "process_sort_index", {process, 0});
  open_args().field("sort_index", process);
}

void TraceEvents::name_thread(Track track, std::string_view name, int32_t place) {
  open_event("M", "thread_name", track);
  open_args().field("name", name);
  open_event("M", "thread_sort_index", track);
  open_args().field("sort_index", place);
}

JsonText& TraceEvents::add_slice(Track track, std::string_view name, std::string_view category,
                                 TimeSpan span) {
  open_event("X", name, track).field("cat", category).field("ts", us_of(span.begin_ns));
  json_.field("dur", static_cast<double>(span.duration_ns()) / 1e3);
  return open_args();
}

void TraceEvents::add_flow(int64_t id, Track from, int64_t from_ns, Track to, int64_t to_ns) {
  open_event("s", kFlow, from).field("cat", kFlow).field("id", id).field("ts", us_of(from_ns));
  open_event("f", kFlow, to).field("cat", kFlow).field("id", id).field("ts", us_of(to_ns));
  json_.field("bp", "e");  // to the slice around the time, not the next one
}

JsonText& TraceEvents::add_counter(int32_t process, std::string_view name, int64_t time_ns) {
  open_event("C", name, {process, 0}).field("ts", us_of(time_ns));
  return open_args();
}

}  // namespace minfer
