#include "kernels/cuda/launch/library_launches.h"

#include <cuda.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/launch/kernel_name.h"

namespace minfer::cuda {
namespace {

/// A function of the driver, looked up at run time: the program does not link with it. `version`: a version of CUDA that has it.
template <class Function>
Function driver_function(const char* symbol, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(symbol, &function, version, cudaEnableDefault, &result) != cudaSuccess)
    return nullptr;
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(function) : nullptr;
}

struct Driver {
  decltype(&cuGraphKernelNodeGetParams) node_params =
      driver_function<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
  decltype(&cuKernelGetFunction) function_of =
      driver_function<decltype(&cuKernelGetFunction)>("cuKernelGetFunction", 12000);
  decltype(&cuFuncGetName) name = driver_function<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
  decltype(&cuFuncGetAttribute) attribute =
      driver_function<decltype(&cuFuncGetAttribute)>("cuFuncGetAttribute", 12000);
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) blocks_per_sm =
      driver_function<decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor)>(
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", 12000);

  bool is_complete() const { return node_params && function_of && name && attribute && blocks_per_sm; }
};

int32_t attribute_of(const Driver& driver, CUfunction function, CUfunction_attribute attribute) {
  int value = 0;
  return driver.attribute(&value, attribute, function) == CUDA_SUCCESS ? value : 0;
}

bool describe(const Driver& driver, CUgraphNode node, KernelLaunch& launch) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (driver.node_params(node, &params) != CUDA_SUCCESS) return false;
  CUfunction function = params.func;
  if (function == nullptr && driver.function_of(&function, params.kern) != CUDA_SUCCESS) return false;
  const char* symbol = nullptr;
  if (driver.name(&symbol, function) != CUDA_SUCCESS) return false;
  const auto size = [](unsigned value) { return static_cast<int32_t>(value); };
  launch.kernel = kernel_name(symbol);
  launch.grid = {size(params.gridDimX), size(params.gridDimY), size(params.gridDimZ)};
  launch.block = {size(params.blockDimX), size(params.blockDimY), size(params.blockDimZ)};
  launch.registers = attribute_of(driver, function, CU_FUNC_ATTRIBUTE_NUM_REGS);
  launch.static_shared_bytes = attribute_of(driver, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  launch.dynamic_shared_bytes = size(params.sharedMemBytes);
  if (driver.blocks_per_sm(&launch.blocks_per_sm, function, launch.num_threads(), params.sharedMemBytes) !=
      CUDA_SUCCESS)
    return false;
  const int32_t cluster = attribute_of(driver, function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  if (cluster > 0) {
    launch.cluster = {cluster, attribute_of(driver, function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                      attribute_of(driver, function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  }
  return true;
}

}  // namespace

std::vector<KernelLaunch> library_launches(const char* path,
                                           const std::function<void(cudaStream_t)>& enqueue) {
  static const Driver driver;
  if (!driver.is_complete()) return {};
  const Stream stream = make_stream();
  const Graph graph = captured(stream.get(), "listing kernels", [&] { enqueue(stream.get()); });
  size_t count = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &count), "listing kernels");
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "listing kernels");
  std::vector<KernelLaunch> launches;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "listing kernels");
    KernelLaunch launch;
    launch.path = path;
    if (type == cudaGraphNodeTypeKernel && describe(driver, node, launch)) launches.push_back(launch);
  }
  return launches;
}

}  // namespace minfer::cuda
