#include "server/serving/model_pool.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "kernels/base/clock.h"
#include "server/routes/router.h"

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kPoll{5};

/// The name that requests give for one of several models.
const std::string& name_of(const PooledModel& model) {
  return model.context.served_model_names.front();
}

}  // namespace

ModelPool::ModelPool(ModelSet set, const ServerParts& parts)
    : parts_(parts),
      max_loaded_(set.max_loaded),
      max_waiting_(set.max_waiting),
      memory_bytes_(set.memory_bytes),
      unload_after_(set.unload_after) {
  for (PooledModel& source : set.models) {
    Model& model = models_.emplace_back(Model{.source = std::move(source)});
    model.source.context.responses = &parts.responses;
    if (std::shared_ptr<Engine> engine = std::exchange(model.source.engine, nullptr)) {
      std::vector<std::string> names = model.source.context.served_model_names;
      if (names.empty()) names = served_names(parts.options, engine->model());
      model.served = std::make_unique<ServedModel>(std::move(engine), std::move(names), parts);
    }
  }
}

ModelPool::~ModelPool() {
  gives_up_ = true;
  if (changes_) changes_->join();
}

void ModelPool::start() {
  if (!is_single()) changes_.emplace(1);
  for (Model& model : models_)
    if (model.served) model.served->start();
  if (unload_after_.count() > 0) unload_idle();
}

size_t ModelPool::find(std::string_view name, std::string_view tag) const {
  if (name.empty() || is_single()) return 0;
  const std::string_view untagged = name.ends_with(tag) ? name.substr(0, name.size() - tag.size()) : name;
  std::vector<std::string> names;
  for (const std::string_view wanted : {name, untagged}) {
    for (size_t i = 0; i < models_.size(); ++i)
      if (names.emplace_back(name_of(models_[i].source)) == wanted) return i;
  }
  names.resize(models_.size());
  throw model_not_found(name, names);
}

std::shared_ptr<const ApiContext> ModelPool::context(size_t model, std::vector<ListedModel> listed) const {
  if (is_single()) return {std::shared_ptr<void>(), &models_.front().served->context()};
  ApiContext context = models_[model].source.context;
  context.listed = std::move(listed);
  return std::make_shared<const ApiContext>(std::move(context));
}

const std::string& ModelPool::first_name() const {
  const Model& first = models_.front();
  return is_single() ? first.served->context().served_model_names.front() : name_of(first.source);
}

void ModelPool::use(size_t index, std::shared_ptr<HttpExchange> exchange, Use use) {
  if (refusal_) throw *refusal_;
  Model& model = models_[index];
  const Waiter waiter{std::move(exchange), std::move(use)};
  if (model.served && !model.makes_room) return give(model, waiter);
  const std::string_view name = name_of(model.source);
  if (model.source.bytes > memory_bytes_) {
    throw ApiError(
        503, fmt::format("The model `{}` needs {} bytes of memory, and all models together have {}", name,
                         model.source.bytes, memory_bytes_));
  }
  if (model.waiters.size() >= max_waiting_)
    throw ApiError(429, fmt::format("the queue is full: {} requests wait for the model `{}`; try again later",
                                    model.waiters.size(), name));
  if (model.waiters.empty()) model.waits_since = now_ns();
  waiter.exchange->on_closed([this] { advance(); });
  model.waiters.push_back(waiter);
  advance();
}

ServedModel& ModelPool::loaded(std::string_view name) const {
  if (!name.empty()) {
    const Model& model = models_[find(name)];
    if (model.served) return *model.served;
    throw ApiError(409, fmt::format("the model `{}` is not loaded now", name));
  }
  for (const Model& model : models_)
    if (model.served) return *model.served;
  throw ApiError(409, "no model is loaded now");
}

std::vector<std::shared_ptr<ServedModel>> ModelPool::all_loaded() const {
  std::vector<std::shared_ptr<ServedModel>> loaded;
  for (const Model& model : models_)
    if (model.served) loaded.push_back(model.served->hold(false));
  return loaded;
}

std::vector<ListedModel> ModelPool::list() const {
  std::vector<ListedModel> listed;
  if (is_single()) return listed;
  for (const Model& model : models_) {
    const bool is_loading = &model == loading_;
    const char* const other = model.has_failed ? "failed" : "unloaded";
    listed.push_back({&model.source.context,
                      model.served ? "loaded"
                      : is_loading ? "loading"
                                   : other,
                      model.waiters.size()});
  }
  return listed;
}

void ModelPool::refuse_all(const ApiError& error) {
  refusal_ = error;
  gives_up_ = true;
  for (Model& model : models_)
    fail(model, error);
}

bool ModelPool::stop(std::chrono::milliseconds patience) {
  bool all_ended = true;
  for (Model& model : models_)
    if (model.served) all_ended &= model.served->engine_service().stop(patience);
  return all_ended && (!change_.valid() || change_.wait_for(patience) == std::future_status::ready);
}

void ModelPool::give_all(Model& model) {
  for (const Waiter& waiter : std::exchange(model.waiters, {}))
    give(model, waiter);
}

void ModelPool::give(Model& model, const Waiter& waiter) {
  waiter.exchange->keep(model.served->hold(true));
  try {
    waiter.use(*model.served);
  } catch (const std::exception& error) {
    answer_error(*waiter.exchange, failure(error));
  }
}

void ModelPool::fail(Model& model, const ApiError& error) {
  for (const Waiter& waiter : std::exchange(model.waiters, {}))
    answer_error(*waiter.exchange, error);
}

bool ModelPool::has_room(const Model& model) const {
  size_t num_loaded = 0;
  int64_t bytes = model.source.bytes;
  for (const Model& other : models_) {
    if (!other.served) continue;
    ++num_loaded;
    bytes += other.source.bytes;
  }
  return num_loaded < max_loaded_ && bytes <= memory_bytes_;
}

/// The model that requests have waited for longest; null: none.
ModelPool::Model* ModelPool::next_to_load() {
  Model* next = nullptr;
  for (Model& model : models_) {
    std::erase_if(model.waiters, [](const Waiter& waiter) { return waiter.exchange->is_closed(); });
    if (model.served || model.waiters.empty()) continue;
    if (next == nullptr || model.waits_since < next->waits_since) next = &model;
  }
  return next;
}

/// The model without requests whose last one ended first. If all have requests: the one that makes room already, else the first by the
/// same order.
ModelPool::Model* ModelPool::next_to_unload() {
  const auto order = [](const Model& model) {
    const ModelUses& uses = model.served->uses();
    return std::tuple(uses.has_requests(), !model.makes_room, uses.last_request_ns());
  };
  Model* next = nullptr;
  for (Model& model : models_)
    if (model.served && (next == nullptr || order(model) < order(*next))) next = &model;
  return next;
}

/// Does the next thing that can be done. Called whenever something has changed.
void ModelPool::advance() {
  Model* const next = next_to_load();
  if (refusal_) return;
  if (is_changing_) {
    if (loading_ != nullptr && loading_->waiters.empty() && next != nullptr) gives_up_ = true;
    return;
  }
  Model* const victim = next != nullptr && !has_room(*next) ? next_to_unload() : nullptr;
  for (Model& model : models_) {
    model.makes_room = &model == victim;
    if (model.served && !model.makes_room) give_all(model);
  }
  if (next == nullptr) return;
  if (victim == nullptr) return load(*next);
  victim->served->uses().none() ? unload(*victim) : advance_later();
}

void ModelPool::advance_later() {
  if (std::exchange(advances_later_, true)) return;
  parts_.loop.post_after(kPoll, [this] {
    advances_later_ = false;
    advance();
  });
}

/// Does `work` on the pool's thread, then `then` on the I/O thread.
void ModelPool::change(std::function<void()> work, std::function<void()> then) {
  is_changing_ = true;
  const auto ended = std::make_shared<std::promise<void>>();
  change_ = ended->get_future();
  boost::asio::post(*changes_, [this, ended, work = std::move(work), then = std::move(then)] {
    work();
    parts_.loop.post([this, then] {
      is_changing_ = false;
      then();
      advance();
    });
    ended->set_value();
  });
}

void ModelPool::load(Model& model) {
  loading_ = &model;
  gives_up_ = false;
  const auto work = [this, &model] {
    try {
      std::shared_ptr<Engine> engine = model.source.load([this](size_t, size_t) {
        if (gives_up_) minfer::fail("the load was given up");
      });
      loaded_ =
          std::make_unique<ServedModel>(std::move(engine), model.source.context.served_model_names, parts_);
    } catch (const std::exception& error) {
      failure_ = failure(error).what();
    }
  };
  change(work, [this, &model, begin_ns = now_ns()] { on_loaded(model, begin_ns); });
}

void ModelPool::on_loaded(Model& model, int64_t begin_ns) {
  loading_ = nullptr;
  model.has_failed = loaded_ == nullptr && !gives_up_;
  if (loaded_) {
    loaded_->start();
    model.served = std::move(loaded_);
    log_change("model loaded", model, {"ms", static_cast<double>(now_ns() - begin_ns) * 1e-6});
    give_all(model);  // before it may have to make room for another
  } else if (model.has_failed) {
    log_change("model not loaded", model, {"reason", failure_});
    fail(model,
         ApiError(503, fmt::format("The model `{}` cannot be loaded: {}", name_of(model.source), failure_)));
  }
}

void ModelPool::log_change(std::string_view event, const Model& model, const LogField& more) {
  parts_.log.write(model.has_failed ? LogLevel::error : LogLevel::info, event,
                   {{"model", std::string_view(name_of(model.source))}, {"bytes", model.source.bytes}, more});
}

void ModelPool::unload(Model& model) {
  model.served->close();
  const int64_t idle_ns = now_ns() - model.served->uses().last_request_ns();
  log_change("model unloaded", model, {"idle_ms", static_cast<double>(idle_ns) * 1e-6});
  change([served = std::shared_ptr<ServedModel>(std::move(model.served))]() mutable { served.reset(); },
         [] {});
}

/// Unloads a model that has had no requests for long enough, and comes back.
void ModelPool::unload_idle() {
  const int64_t end_ns = now_ns() - std::chrono::nanoseconds(unload_after_).count();
  for (Model& model : models_) {
    if (is_changing_ || refusal_ || !model.served || !model.served->uses().none()) continue;
    if (model.served->uses().last_request_ns() <= end_ns) unload(model);
  }
  parts_.loop.post_after(unload_after_ / 10 + kPoll, [this] { unload_idle(); });
}

}  // namespace minfer
