#include "kernels/cuda/comm/reduction.cuh"

/// x = part (+ x), normed = rms_norm(x), after the parts have been summed: a block takes a row.
/// Moves rows * cols * (sizeof part + 4, or 8 with the residual, + sizeof normed) bytes.
namespace minfer::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <class T, class Normed, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 1)
    end_rows_kernel(const T* part, int64_t part_stride, const __grid_constant__ RowEnd<Normed> end,
                    Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const Vector8 first_norm = begin_row_kernel<kAligned>(end, stamps);
  const int64_t row = blockIdx.x;
  end_row<kAligned>(end, row, first_norm, [&](int32_t vector) {
    const int32_t first = vector * kVectorElements;
    return load_vector<kAligned>(part + row * part_stride + first, end.cols - first);
  });
}

}  // namespace

void end_rows(Launch& launch, const AllReduceArgs& args) {
  for_types(args, [&]<class T, class Normed, bool kAligned>() {
    launch("end_rows", end_rows_kernel<T, Normed, kAligned>, dim3(static_cast<uint32_t>(args.part.rows)),
           dim3(threads_of_rows(args.part.cols, kMaxThreads)), 0, static_cast<const T*>(args.part.data),
           args.part.stride, row_end_of<Normed>(args, nullptr));
  });
}

}  // namespace minfer::cuda
