#include "kernels/cuda/profiler/nvtx_ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <array>
#include <map>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

namespace minfer::cuda {

struct NvtxRanges::Names {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("minfer");
  nvtxStringHandle_t step = add("step");
  std::array<nvtxStringHandle_t, 3> phases{add("prefill"), add("decode"), add("mixed")};
  std::vector<nvtxStringHandle_t> ops;     ///< by OpId
  std::vector<int32_t> layer_of;           ///< by OpId
  std::vector<nvtxStringHandle_t> layers;  ///< by layer

  ~Names() { nvtxDomainDestroy(domain); }
  nvtxStringHandle_t add(const char* text) const { return nvtxDomainRegisterStringA(domain, text); }
  void push(nvtxStringHandle_t text, int64_t payload = 0) const {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = text;
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = payload;
    nvtxDomainRangePushEx(domain, &event);
  }
  void pop() const { nvtxDomainRangePop(domain); }
};

NvtxRanges::NvtxRanges() : names_(std::make_unique<Names>()) {}

NvtxRanges::~NvtxRanges() = default;

void NvtxRanges::name_ops(std::span<const OpInfo> ops) {
  std::map<std::string, nvtxStringHandle_t, std::less<>> by_name;  // each op has its name in every layer
  names_->ops.clear();
  names_->layer_of.clear();
  for (const OpInfo& op : ops) {
    const auto [entry, is_new] = by_name.try_emplace(op.name);
    if (is_new) entry->second = names_->add(op.name.c_str());
    names_->ops.push_back(entry->second);
    names_->layer_of.push_back(op.layer);
    for (int32_t layer = static_cast<int32_t>(names_->layers.size()); layer <= op.layer; ++layer)
      names_->layers.push_back(names_->add(("layer " + std::to_string(layer)).c_str()));
  }
}

void NvtxRanges::begin_step(int64_t step, const ForwardBatch& batch) {
  names_->push(names_->step, step);
  const size_t phase = batch.num_decode_tokens == 0 ? 0 : batch.num_decode_tokens == batch.num_tokens ? 1 : 2;
  names_->push(names_->phases[phase]);
}

void NvtxRanges::begin_op(OpId op) {
  const auto index = static_cast<size_t>(op);
  const bool is_named = op >= 0 && index < names_->ops.size();
  const int32_t layer = is_named ? names_->layer_of[index] : -1;
  if (layer != layer_) {
    if (layer_ >= 0) names_->pop();
    layer_ = layer;
    if (layer_ >= 0) names_->push(names_->layers[static_cast<size_t>(layer_)], layer_);
  }
  names_->push(is_named ? names_->ops[index] : names_->step);
}

void NvtxRanges::end_op() {
  names_->pop();
}

void NvtxRanges::end_step() {
  if (layer_ >= 0) names_->pop();
  layer_ = -1;
  names_->pop();
  names_->pop();
}

}  // namespace minfer::cuda

#else

namespace minfer::cuda {

struct NvtxRanges::Names {};

NvtxRanges::NvtxRanges() = default;
NvtxRanges::~NvtxRanges() = default;
void NvtxRanges::name_ops(std::span<const OpInfo> /*ops*/) {}
void NvtxRanges::begin_step(int64_t /*step*/, const ForwardBatch& /*batch*/) {}
void NvtxRanges::begin_op(OpId /*op*/) {}
void NvtxRanges::end_op() {}
void NvtxRanges::end_step() {}

}  // namespace minfer::cuda

#endif
