#pragma once

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"

namespace minfer::cuda {

/// A graph of what `work` launches on `stream`. `what` names it in errors. Other threads may use the device
/// meanwhile. If `work` throws, restores the stream and throws the same.
template <class Work>
Graph captured(cudaStream_t stream, const char* what, Work&& work) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), what);
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), what);
  return Graph(graph);
}

/// The same, ready to be launched.
template <class Work>
GraphExec replayable(cudaStream_t stream, const char* what, Work&& work) {
  const Graph graph = captured(stream, what, work);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0), what);
  return GraphExec(executable);
}

}  // namespace minfer::cuda
