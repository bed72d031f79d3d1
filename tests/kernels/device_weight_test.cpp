// In which type, and in how many bytes, a GPU keeps a file's weights.
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/work.h"

namespace minfer {
namespace {

constexpr int64_t kRows = 64, kCols = 512;  // whole tiles of every type

HostTensor host_tensor(DType dtype, int64_t count = 1) {
  static const std::array<char, 1> kData{};
  return {"weight", kData.data(), dtype, count, kRows, kCols};
}

TEST(DeviceWeight, ExpertsOfRareTypesAreConverted) {
  const std::map<DType, DType> converted{{DType::q5_0, DType::q8_0},  {DType::iq4_nl, DType::q8_0},
                                         {DType::q3_k, DType::q6_k},  {DType::q4_1, DType::bf16},
                                         {DType::q5_1, DType::bf16},  {DType::q2_k, DType::bf16},
                                         {DType::iq4_xs, DType::bf16}};
  for (const DTypeTraits& each : all_dtypes()) {
    const auto found = converted.find(each.dtype);
    const DType kept = found == converted.end() ? each.dtype : found->second;
    EXPECT_EQ(cuda::expert_dtype(each.dtype), kept) << each.name;
    EXPECT_EQ(cuda::is_rare(each.dtype), kept != each.dtype) << each.name;
    EXPECT_FALSE(cuda::is_rare(kept)) << each.name;
    const Weight dense = cuda::device_weight(host_tensor(each.dtype), &converted);
    EXPECT_EQ(dense.dtype, each.dtype) << each.name;
    EXPECT_FALSE(dense.file_dtype) << each.name;
    EXPECT_EQ(dense.matrix_bytes(), kRows * row_bytes(each.dtype, kCols)) << each.name;
    const Weight weight = cuda::device_weight(host_tensor(each.dtype, 3), &converted);
    EXPECT_EQ(weight.dtype, kept) << each.name;
    EXPECT_EQ(weight.count, 3);
    EXPECT_EQ(weight.file_dtype.has_value(), kept != each.dtype) << each.name;
    EXPECT_EQ(weight.file_matrix_bytes(), kRows * row_bytes(each.dtype, kCols)) << each.name;
    EXPECT_EQ(weight.matrix_bytes(), kRows * row_bytes(kept, kCols)) << each.name;
  }
}

// What op_work() counts of a weight is what a kernel streams: but for padding, its bytes in device memory.
TEST(DeviceWeight, TakesTheBytesThatAreCounted) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                            DType::q5_1, DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4}) {
    const HostTensor tensor = host_tensor(dtype), experts = host_tensor(dtype, 2);
    EXPECT_EQ(cuda::device_bytes(tensor), tensor.bytes()) << name(dtype);
    EXPECT_EQ(cuda::device_bytes(experts), 2 * cuda::device_weight(experts, &experts).matrix_bytes())
        << name(dtype);
  }
  EXPECT_EQ(cuda::device_bytes(host_tensor(DType::iq4_xs, 2)), 2 * kRows * kCols * 2);
  const HostTensor norm{"norm", nullptr, DType::bf16, 1, 1, kCols};
  EXPECT_EQ(cuda::device_bytes(norm), kCols * 2u);
  EXPECT_EQ(cuda::reserved_bytes(norm), kCols * 4u) << "may be widened by the loader";
}

TEST(DeviceWeight, IsWhatATensorIsToBecome) {
  HostTensor tensor = host_tensor(DType::bf16, 3);
  tensor.quantise_to = DType::fp8;
  const Weight weight = cuda::device_weight(tensor, &kRows);
  EXPECT_EQ(weight.dtype, DType::fp8);
  EXPECT_EQ(weight.file_dtype, DType::bf16);
  EXPECT_EQ(weight.matrix_bytes(), kRows * (kCols + kCols / 64))
      << "a byte an element, two bytes for 128 of them";
  EXPECT_EQ(cuda::device_bytes(tensor), 3 * weight.matrix_bytes());
  EXPECT_EQ(cuda::reserved_bytes(tensor), 3 * weight.matrix_bytes());
  EXPECT_EQ(tensor.bytes(), 3u * kRows * kCols * 2);
  EXPECT_EQ(tensor.loaded_bytes(), 3 * weight.matrix_bytes());
  tensor.cols = 704;  // two tiles and three quarters
  EXPECT_EQ(tensor.loaded_bytes(), 3u * kRows * 6 * 130) << "rows are whole blocks";
  EXPECT_EQ(cuda::device_bytes(tensor), 3u * 4 * 3 * 4160);
  OpInfo info;
  set_weights(info, std::array{weight});
  EXPECT_EQ(info.converted, "bf16 to fp8");
  EXPECT_EQ(info.file_bytes, kRows * kCols * 2);
}

TEST(DeviceWeight, AnOpHasBothSizes) {
  const Weight converted = cuda::device_weight(host_tensor(DType::iq4_xs, 2), &kRows);
  const Weight kept = cuda::device_weight(host_tensor(DType::q6_k), &kRows);
  const auto bytes = [](DType dtype) { return static_cast<int64_t>(kRows * row_bytes(dtype, kCols)); };
  OpInfo info;
  set_weights(info, std::array{converted, converted, kept, Weight{}});
  EXPECT_EQ(info.weight_bytes, 2 * bytes(DType::bf16) + bytes(DType::q6_k));
  EXPECT_EQ(info.file_bytes, 2 * bytes(DType::iq4_xs) + bytes(DType::q6_k));
  EXPECT_EQ(info.converted, "iq4_xs to bf16");
  set_weights(info, std::array{converted, cuda::device_weight(host_tensor(DType::q5_0, 2), &kRows)});
  EXPECT_EQ(info.converted, "iq4_xs to bf16, q5_0 to q8_0");
  set_weights(info, std::array{kept, kept});
  EXPECT_EQ(info.weight_bytes, 2 * bytes(DType::q6_k));
  EXPECT_EQ(info.file_bytes, 0);
  EXPECT_EQ(info.converted, "");
  set_weights(info, {});
  EXPECT_EQ(info.weight_bytes, 0);
}

}  // namespace
}  // namespace minfer
