// The type and the number of bytes in which a GPU keeps a file's weights.
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/work.h"

namespace minfer {
namespace {

constexpr int64_t kWeightRows = 64, kWeightCols = 512;  // whole tiles of every type

HostTensor host_tensor(DType dtype, int64_t count = 1) {
  static const std::array<char, 1> kData{};
  return {"weight", kData.data(), dtype, count, kWeightRows, kWeightCols};
}

TEST(DeviceWeight, RareTypesAreConverted) {
  using enum DType;
  const std::map<DType, DType> dense_types{{tq1_0, q2_k},  {tq2_0, q2_k}, {iq2_xxs, lut4},
                                           {iq2_xs, lut4}, {iq2_s, lut4}, {iq3_xxs, lut4},
                                           {iq3_s, lut4},  {iq1_s, lut4}, {iq1_m, lut4}};
  std::map<DType, DType> expert_types{{q5_0, q8_0},  {iq4_nl, q8_0}, {q3_k, q6_k},
                                      {tq1_0, q6_k}, {tq2_0, q6_k},  {q4_1, bf16},
                                      {q5_1, bf16},  {q2_k, bf16},   {iq4_xs, bf16}};
  for (const auto& [type, kept] : dense_types) {
    if (kept == lut4) expert_types[type] = lut4;
  }
  const auto kept_of = [](const std::map<DType, DType>& converted, DType dtype) {
    const auto found = converted.find(dtype);
    return found == converted.end() ? dtype : found->second;
  };
  for (const DTypeTraits& each : all_dtypes()) {
    const DType kept = kept_of(expert_types, each.dtype), dense_kept = kept_of(dense_types, each.dtype);
    EXPECT_EQ(cuda::expert_dtype(each.dtype), kept) << each.name;
    EXPECT_EQ(cuda::is_rare(each.dtype), kept != each.dtype) << each.name;
    EXPECT_EQ(cuda::expert_dtype(kept), kept) << each.name;
    EXPECT_EQ(cuda::is_rare(dense_kept), kept != each.dtype)
        << each.name << ": has the kernels of what it is";
    const Weight dense = cuda::device_weight(host_tensor(each.dtype), &kWeightRows);
    EXPECT_EQ(dense.dtype, dense_kept) << each.name;
    EXPECT_EQ(dense.file_dtype.has_value(), dense_kept != each.dtype) << each.name;
    EXPECT_EQ(dense.matrix_bytes(), kWeightRows * row_bytes(dense_kept, kWeightCols)) << each.name;
    const Weight weight = cuda::device_weight(host_tensor(each.dtype, 3), &kWeightRows);
    EXPECT_EQ(weight.dtype, kept) << each.name;
    EXPECT_EQ(weight.count, 3);
    EXPECT_EQ(weight.file_dtype.has_value(), kept != each.dtype) << each.name;
    EXPECT_EQ(weight.file_matrix_bytes(), kWeightRows * row_bytes(each.dtype, kWeightCols)) << each.name;
    EXPECT_EQ(weight.matrix_bytes(), kWeightRows * row_bytes(kept, kWeightCols)) << each.name;
  }
}

// op_work() counts the bytes of a weight that a kernel streams: its bytes in device memory without padding.
TEST(DeviceWeight, TakesTheBytesThatAreCounted) {
  for (const DTypeTraits& each : all_dtypes()) {
    const HostTensor tensor = host_tensor(each.dtype), experts = host_tensor(each.dtype, 2);
    const auto counted = static_cast<size_t>(cuda::device_weight(tensor, &tensor).matrix_bytes());
    EXPECT_EQ(cuda::device_bytes(tensor), counted) << each.name;
    if (cuda::dense_dtype(each.dtype) == each.dtype) {
      EXPECT_EQ(counted, tensor.bytes()) << each.name;
    }
    EXPECT_EQ(cuda::device_bytes(experts), 2 * cuda::device_weight(experts, &experts).matrix_bytes())
        << each.name;
  }
  EXPECT_EQ(cuda::device_bytes(host_tensor(DType::iq2_xxs)), kWeightRows * kWeightCols * 9 / 16)
      << "4.5 bits an element";
  EXPECT_EQ(cuda::device_bytes(host_tensor(DType::tq1_0)), kWeightRows * kWeightCols * 21 / 64)
      << "2.625 bits";
  EXPECT_EQ(cuda::device_bytes(host_tensor(DType::iq4_xs, 2)), 2 * kWeightRows * kWeightCols * 2);
  const HostTensor norm{"norm", nullptr, DType::bf16, 1, 1, kWeightCols};
  EXPECT_EQ(cuda::device_bytes(norm), kWeightCols * 2u);
  EXPECT_EQ(cuda::reserved_bytes(norm), kWeightCols * 4u) << "may be widened by the loader";
}

TEST(DeviceWeight, IsWhatATensorIsToBecome) {
  HostTensor tensor = host_tensor(DType::bf16, 3);
  tensor.quantise_to = DType::fp8;
  const Weight weight = cuda::device_weight(tensor, &kWeightRows);
  EXPECT_EQ(weight.dtype, DType::fp8);
  EXPECT_EQ(weight.file_dtype, DType::bf16);
  EXPECT_EQ(weight.matrix_bytes(), kWeightRows * (kWeightCols + kWeightCols / 64))
      << "a byte an element, two bytes for 128 of them";
  EXPECT_EQ(cuda::device_bytes(tensor), 3 * weight.matrix_bytes());
  EXPECT_EQ(cuda::reserved_bytes(tensor), 3 * weight.matrix_bytes());
  EXPECT_EQ(tensor.bytes(), 3u * kWeightRows * kWeightCols * 2);
  EXPECT_EQ(tensor.loaded_bytes(), 3 * weight.matrix_bytes());
  tensor.cols = 704;  // two tiles and three quarters
  EXPECT_EQ(tensor.loaded_bytes(), 3u * kWeightRows * 6 * 130) << "rows are whole blocks";
  EXPECT_EQ(cuda::device_bytes(tensor), 3u * 4 * 3 * 4160);
  OpInfo info;
  set_weights(info, std::array{weight});
  EXPECT_EQ(info.converted, "bf16 to fp8");
  EXPECT_EQ(info.file_bytes, kWeightRows * kWeightCols * 2);
}

TEST(DeviceWeight, AnOpHasBothSizes) {
  const Weight converted = cuda::device_weight(host_tensor(DType::iq4_xs, 2), &kWeightRows);
  const Weight kept = cuda::device_weight(host_tensor(DType::q6_k), &kWeightRows);
  const auto bytes = [](DType dtype) {
    return static_cast<int64_t>(kWeightRows * row_bytes(dtype, kWeightCols));
  };
  OpInfo info;
  set_weights(info, std::array{converted, converted, kept, Weight{}});
  EXPECT_EQ(info.weight_bytes, 2 * bytes(DType::bf16) + bytes(DType::q6_k));
  EXPECT_EQ(info.file_bytes, 2 * bytes(DType::iq4_xs) + bytes(DType::q6_k));
  EXPECT_EQ(info.converted, "iq4_xs to bf16");
  set_weights(info, std::array{converted, cuda::device_weight(host_tensor(DType::q5_0, 2), &kWeightRows)});
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
