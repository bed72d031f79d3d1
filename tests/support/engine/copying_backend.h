#pragma once

#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace minfer::test {

/// The CPU backend with its own copies of weights, like a device.
class CopyingBackend final : public cpu::CpuBackend {
 public:
  explicit CopyingBackend(int32_t threads = 1) : CpuBackend(threads) {}

  BackendInfo info() const override {
    BackendInfo info = CpuBackend::info();
    info.copies_weights = true;
    return info;
  }
  Weight load(const HostTensor& tensor) override {
    copies_.push_back(allocate(tensor.bytes(), tensor.name));
    std::memcpy(copies_.back().data(), tensor.data, tensor.bytes());
    HostTensor copy = tensor;
    copy.data = copies_.back().data();
    return CpuBackend::load(copy);
  }

 private:
  std::vector<Buffer> copies_;
};

}  // namespace minfer::test
